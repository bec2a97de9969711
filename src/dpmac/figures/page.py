"""Style and behaviour of the report's page, which holds everything it needs."""

CSS = """
:root { color-scheme: light dark; --ink: #1d1d22; --faint: #6a6a75; --paper: #fdfdfc; --card: #f3f3f1; --line: #dcdcd8;
  --holds: #1f7a43; --contradicted: #b3382c; --difference: #5b5fa8; --undecided: #7d6210; --accent: #2565ae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --faint: #9b9ba6; --paper: #17171a; --card: #212126;
  --line: #3a3a42; --holds: #5cc487; --contradicted: #f08a7e; --difference: #a9adf0; --undecided: #dcb950;
  --accent: #7db4f5; } }
* { box-sizing: border-box; } :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main, header, nav { max-width: 1240px; margin: 0 auto; padding: 0 16px; }
h1 { font-size: 1.7rem; margin: 28px 0 4px; line-height: 1.2; } h2 { margin: 48px 0 8px; font-size: 1.3rem; }
h3 { margin: 26px 0 6px; font-size: 1.02rem; } p { max-width: 78ch; margin: 6px 0; } a { color: var(--accent); }
.faint { color: var(--faint); }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; padding-top: 10px; padding-bottom: 10px; }
.tally { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; padding: 0; }
.tally button { font: inherit; color: inherit; border: 1px solid var(--line); border-radius: 10px; cursor: pointer;
  background: var(--card); padding: 8px 16px; text-align: left; }
.tally b { display: block; font-size: 1.5rem; line-height: 1.1; }
.tally button[aria-pressed=true] { outline: 2px solid var(--accent); }
.holds { --tone: var(--holds); } .contradicted, .opposite-holds { --tone: var(--contradicted); }
.no-such-difference { --tone: var(--difference); } .undecided { --tone: var(--undecided); }
.not-tested { --tone: var(--faint); }
.tally b, .verdict { color: var(--tone); } .verdict { font-weight: 600; white-space: nowrap; }
.claim { border-left: 4px solid var(--tone); background: var(--card); margin: 6px 0; border-radius: 0 8px 8px 0; }
.claim summary { display: grid; grid-template-columns: 10rem 1fr 190px; gap: 12px; padding: 8px 12px; cursor: pointer;
  align-items: center; list-style: none; } .claim summary::-webkit-details-marker { display: none; }
.claim svg { width: 190px; height: auto; display: block; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.86rem; min-width: 100%; }
th, td { text-align: left; padding: 4px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); gap: 14px; }
.panel { position: relative; border: 1px solid var(--line); border-radius: 8px; padding: 6px; min-width: 0; }
.panel.broad { overflow-x: auto; } .panel.broad svg { min-width: 640px; }
.panel svg { width: 100%; height: auto; display: block; }
.cursor { position: absolute; width: 1px; background: var(--faint); pointer-events: none; }
#tip { position: fixed; z-index: 9; pointer-events: none; background: var(--paper); border: 1px solid var(--line);
  border-radius: 6px; padding: 6px 9px; font-size: 0.8rem; box-shadow: 0 2px 10px #0003; max-width: 92vw; }
#tip div { display: flex; gap: 6px; align-items: baseline; } #tip span:last-child { margin-left: auto; }
.swatch { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 2px; flex: none; }
.whole { white-space: nowrap; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 0.86rem; margin: 4px 0 8px; }
body[data-spread=deviation] .interval, body[data-spread=interval] .deviation { display: none; }
.choice { display: inline-flex; border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.choice button { font: inherit; border: 0; background: none; color: inherit; padding: 5px 12px; cursor: pointer; }
.choice button[aria-pressed=true] { background: var(--accent); color: var(--paper); }
.controls { display: flex; flex-wrap: wrap; gap: 8px 12px; align-items: center; margin: 8px 0; }
.controls select, .controls button { font: inherit; padding: 4px 8px; }
pre { background: var(--card); padding: 10px 12px; overflow-x: auto; border-radius: 8px; font-size: 0.82rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 720px) { .claim summary { grid-template-columns: minmax(0, 1fr); gap: 4px; } }
"""

JS = """
const $ = (selector, root = document) => [...root.querySelectorAll(selector)];

function press(buttons, chosen) { buttons.forEach(b => b.setAttribute('aria-pressed', b === chosen)); }
const filters = $('.tally button');
filters.forEach(button => button.addEventListener('click', () => {
  const off = button.getAttribute('aria-pressed') === 'true';
  press(filters, off ? null : button);
  $('.claim').forEach(claim => claim.hidden = !off && !claim.classList.contains(button.className));
}));
const spreads = $('[data-choose]');
spreads.forEach(button => button.addEventListener('click', () => {
  document.body.dataset.spread = button.dataset.choose; press(spreads, button);
}));

const tip = document.getElementById('tip');
const digits = value => Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, i) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = i; });
  return best;
}
function hide(panel) { tip.hidden = true; $('.cursor', panel).forEach(line => line.remove()); }
$('.panel[data-hover]').forEach(panel => {
  const boxes = JSON.parse(panel.dataset.hover), svg = panel.querySelector('svg');
  panel.addEventListener('pointerleave', () => hide(panel));
  panel.addEventListener('pointermove', event => {
    hide(panel);
    const frame = svg.getBoundingClientRect();
    const u = (event.clientX - frame.left) / frame.width, v = (event.clientY - frame.top) / frame.height;
    const box = boxes.find(({box: [l, t, r, b]}) => u >= l && u <= r && v >= t && v <= b);
    if (!box || !box.series.length) return;
    const [l, t, r, b] = box.box, share = (u - l) / (r - l), down = (v - t) / (b - t);
    let rows, head = '';
    if (box.kind === 'curve') {
      const [x0, x1] = box.log ? box.x.map(Math.log) : box.x;
      const raw = x0 + share * (x1 - x0), wanted = box.log ? Math.exp(raw) : raw;
      rows = box.series.map(s => {
        const i = nearest(s.x, wanted);
        return [s, s.y[i], s.low && s.low[i], s.high && s.high[i]];
      });
      const at = box.series[0].x[nearest(box.series[0].x, wanted)];
      head = at >= 1000 ? at.toLocaleString('en') + ' steps' : digits(at);
      rows.sort((a, c) => c[1] - a[1]);
      const line = document.createElement('div');
      line.className = 'cursor';
      const outer = panel.getBoundingClientRect();
      line.style.left = event.clientX - outer.left + 'px';
      line.style.top = frame.top - outer.top + t * frame.height + 'px';
      line.style.height = (b - t) * frame.height + 'px';
      panel.append(line);
    } else {
      const row = Math.round(box.y[1] + down * (box.y[0] - box.y[1]));
      rows = box.series.filter(s => s.y[0] === row).map(s => [s, s.x[0], s.low[0], s.high[0]]);
      if (!rows.length) return;
    }
    tip.replaceChildren();
    if (head) { const title = document.createElement('b'); title.textContent = head; tip.append(title); }
    for (const [series, value, low, high] of rows) {
      const entry = document.createElement('div');
      const [swatch, name, number] = [0, 1, 2].map(() => document.createElement('span'));
      swatch.className = 'swatch'; swatch.style.background = series.colour;
      name.textContent = series.label;
      number.textContent = digits(value) + (low === undefined ? '' : ` [${digits(low)}, ${digits(high)}]`);
      entry.append(swatch, name, number); tip.append(entry);
    }
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - size.width - 4)) + 'px';
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - size.height - 4)) + 'px';
  });
});

"""
