"""The picture of what a private channel costs."""

import pytest

from dpmac.config import BadInput, Budget, Channel
from dpmac.figures import privacy


@pytest.mark.parametrize("mechanism", ["gaussian", "response"])
def test_plot_is_drawn(tmp_path, mechanism):
    path = tmp_path / "explain.svg"
    privacy.plot(str(path), Budget((1.0,)), Channel(mechanism, period=5), 10)
    text = path.read_text()
    assert len(text) > 10_000
    assert "<svg" in text


def test_plot_names_the_formats_it_knows(tmp_path):
    with pytest.raises(BadInput, match=r"\.png, \.svg, \.pdf"):
        privacy.plot(str(tmp_path / "explain.docx"), Budget((1.0,)), Channel(), 10)
