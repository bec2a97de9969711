"""The one renderer: a scene, with its messages and a caption where wanted, as an RGB array."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from dpmac.config import require, whole
from dpmac.tasks.base import Body, Scene

PAPER = (255, 255, 255)
INK = (40, 40, 40)
ARROW = (230, 120, 20)
SMOOTH = 2
"""Pictures are drawn this much larger and scaled down, which smooths edges."""
LARGEST = 2048
"""Pixels of a picture's side at most: a film keeps all of its pictures in memory."""
FILMS = {".gif": "GIF", ".webp": "WEBP", ".png": "PNG"}


def extent_of(scenes: Sequence[Scene]) -> float:
    """Half the width of a view of all scenes: 1.2, or more where somebody has run away."""
    bodies = [body for scene in scenes for body in (*scene.agents, *scene.others)]
    return max([1.2, *(max(abs(body.x), abs(body.y)) + body.radius for body in bodies)])


def render(
    scene: Scene,
    size: int = 400,
    extent: float | None = None,
    messages: Any = None,
    caption: str = "",
) -> np.ndarray:
    """Draw a scene as (size, size, 3) bytes.

    `extent` is half the width of the view (by default what holds the scene; give one for all frames of a film).
    `messages` (sender, receiver) are strengths in [0, 1], drawn as arrows between agents; 0 draws none. The caption
    stands below, and may have several lines.
    """
    require(whole(size, 16, LARGEST), f"size must be a whole number of pixels from 16 to {LARGEST}, not {size}")
    wide = size * SMOOTH
    extent = extent_of([scene]) if extent is None else extent
    image = Image.new("RGB", (wide, wide), PAPER)
    canvas = ImageDraw.Draw(image)

    def place(x: float, y: float) -> np.ndarray:
        return np.array([(x / extent + 1) * wide / 2, (1 - y / extent) * wide / 2])

    if scene.picture is not None:
        drawn = ImageOps.contain(Image.fromarray(scene.picture), (wide, wide * 7 // 8))  # the caption stands below
        image.paste(drawn, ((wide - drawn.width) // 2, 0))
    for body in sorted((*scene.others, *scene.agents), key=lambda body: -body.radius):
        _draw_body(canvas, body, place(body.x, body.y), body.radius / extent * wide / 2)
    if messages is not None and scene.agents:
        for i, j in np.argwhere(np.asarray(messages) > 0):
            sender, receiver = scene.agents[i], scene.agents[j]
            ends = place(sender.x, sender.y), place(receiver.x, receiver.y)
            gaps = sender.radius / extent * wide / 2, receiver.radius / extent * wide / 2
            _draw_arrow(canvas, *ends, *gaps, float(np.clip(np.asarray(messages)[i, j], 0, 1)), wide)
    font = ImageFont.load_default(size=max(10, wide // 28))
    for body in scene.agents:
        canvas.text(tuple(place(body.x, body.y)), body.label, INK, font, anchor="mm")
    if scene.legend:
        canvas.text((wide // 50, wide // 50), scene.legend, INK, ImageFont.load_default(size=max(8, wide // 40)))
    if caption:
        canvas.multiline_text((wide // 50, wide - wide // 50), caption, INK, font, anchor="ld")
    return np.asarray(image.resize((size, size), Image.Resampling.BOX))


def _draw_body(canvas: ImageDraw.ImageDraw, body: Body, centre: np.ndarray, radius: float) -> None:
    red, green, blue = (round(255 * part) for part in body.colour)
    box = [*(centre - radius), *(centre + radius)]
    draw = canvas.rectangle if body.shape == "square" else canvas.ellipse
    draw(box, fill=(red, green, blue), outline=INK if body.shape == "disc" else None)


def _draw_arrow(
    canvas: ImageDraw.ImageDraw,
    start: np.ndarray,
    end: np.ndarray,
    start_gap: float,
    end_gap: float,
    strength: float,
    wide: int,
) -> None:
    """An arrow from rim to rim, beside its reverse; strength is colour and width."""
    length = float(np.linalg.norm(end - start))
    if length <= start_gap + end_gap:
        return
    along = (end - start) / length
    aside = np.array([-along[1], along[0]]) * wide / 120
    tail, tip = start + along * start_gap + aside, end - along * end_gap + aside
    faint = np.asarray(PAPER) + (np.asarray(ARROW) - np.asarray(PAPER)) * (0.2 + 0.8 * strength)
    red, green, blue = (round(part) for part in faint)
    head = wide / 50 * (0.7 + 0.6 * strength)
    base = tip - along * min(head, length / 2)
    wing = np.array([-along[1], along[0]]) * head / 2
    canvas.line([tuple(tail), tuple(base)], (red, green, blue), width=max(1, round(wide / 130 * (0.3 + strength))))
    canvas.polygon([tuple(tip), tuple(base + wing), tuple(base - wing)], (red, green, blue))


def film_path(path: str | Path) -> Path:
    """The path of a film, or bad input: worth asking before a long run."""
    path = Path(path)
    require(path.suffix in FILMS, f"a film's name must end in {', '.join(FILMS)}, not {path.name!r}")
    return path


def save_film(frames: Sequence[np.ndarray], path: str | Path, fps: float = 10) -> Path:
    """Write frames as an animation, whose kind the name's ending tells: .gif, .webp or .png."""
    path = film_path(path)
    require(len(frames) > 0, "a film needs at least one frame")
    require(0.1 <= fps <= 100, f"fps must lie between 0.1 and 100, not {fps}")
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = [Image.fromarray(frame) for frame in frames]
    first.save(path, FILMS[path.suffix], save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)
    return path
