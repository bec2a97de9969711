// Draws what explorer.py tells: selects, curves, the privacy statement, an episode, and what a listener makes of it.

const SVG = 'http://www.w3.org/2000/svg';
const tone = name => getComputedStyle(document.body).getPropertyValue(name).trim();
const signed = (value, places = 1) => value.toFixed(places).replace('-', '−');
const length = vector => Math.hypot(...vector);
const sum = values => values.reduce((a, b) => a + b, 0);

// Charts ------------------------------------------------------------------------------------------------------------

function chart(svg, {height, x, y, lines, levels, names, ticks, now, label}) {
  const width = svg.clientWidth || 320, [left, right, top, bottom] = [46, 12, 14, 36];
  const X = v => left + (v - x[0]) / (x[1] - x[0] || 1) * (width - left - right);
  const Y = v => top + (y[1] - v) / (y[1] - y[0] || 1) * (height - top - bottom);
  const add = (kind, attributes, text) => {
    const node = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    svg.append(node); return node;
  };
  svg.replaceChildren(); svg.setAttribute('viewBox', `0 0 ${width} ${height}`); svg.style.height = height + 'px';
  svg.setAttribute('aria-label', label);
  const clip = svg.classList[0] + '-area';
  const area = {x: left, y: top, width: Math.max(0, width - left - right), height: height - top - bottom};
  const defs = document.createElementNS(SVG, 'clipPath'), box = document.createElementNS(SVG, 'rect');
  defs.id = clip; for (const [name, value] of Object.entries(area)) box.setAttribute(name, value);
  defs.append(box); svg.append(defs);
  const inside = {'clip-path': `url(#${clip})`};
  for (const v of ticks.y) {
    add('path', {d: `M${left} ${Y(v)}H${width - right}`, stroke: 'var(--line)', 'stroke-width': 0.6});
    add('text', {x: left - 6, y: Y(v) + 4, 'text-anchor': 'end', fill: 'var(--faint)'}, names.y(v));
  }
  for (const v of ticks.x) {
    add('text', {x: X(v), y: height - bottom + 15, 'text-anchor': 'middle', fill: 'var(--faint)'}, names.x(v));
  }
  add('text', {x: (left + width - right) / 2, y: height - 4, 'text-anchor': 'middle', fill: 'var(--faint)'}, names.under);
  for (const {points, low, high, colour} of lines.filter(line => line.low)) {
    const there = points.map(([u]) => u), edge = [...high.map((v, i) => [there[i], v]),
      ...low.map((v, i) => [there[i], v]).reverse()].map(([u, v]) => `${X(u)} ${Y(v)}`);
    add('path', {d: `M${edge.join('L')}Z`, fill: colour, opacity: 0.2, ...inside});
  }
  for (const {points, colour, dash = ''} of lines) {
    const d = 'M' + points.map(([u, v]) => `${X(u).toFixed(1)} ${Y(v).toFixed(1)}`).join('L');
    add('path', {d, fill: 'none', stroke: colour, 'stroke-width': 2, 'stroke-dasharray': dash, ...inside});
  }
  for (const {value, text, end} of levels) {
    add('path', {d: `M${left} ${Y(value)}H${width - right}`, stroke: 'currentColor', 'stroke-dasharray': '4 3', opacity: 0.6});
    add('text', {x: end ? width - right : left + 4, y: Y(value) - 4, 'text-anchor': end ? 'end' : 'start',
      fill: 'currentColor'}, text);
  }
  if (now) {
    add('path', {d: `M${X(now[0])} ${top}V${height - bottom}`, stroke: 'var(--faint)'});
    add('circle', {cx: X(now[0]), cy: Y(now[1]), r: 4.5, fill: 'var(--contradicted)'});
  }
}

function round(low, high, count = 4) {
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(k => k * unit).find(k => k >= raw), found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) found.push(Number(v.toPrecision(6)));
  return found;
}
const many = steps => steps >= 1e5 ? steps / 1e6 + 'M' : steps.toLocaleString('en');

/** A cell's learning between the reference policies; beside it, if there is one, a team that sends nothing. */
function curve(svg, caption, cell, task, silent) {
  const colour = tone('--accent'), points = one => one.steps.map((u, i) => [u, one.middle[i]]);
  const lines = [{points: points(cell), low: cell.low, high: cell.high, colour}];
  if (silent && silent !== cell) lines.unshift({points: points(silent), colour: tone('--faint'), dash: '2 3'});
  const {random, scripted} = task.returns, last = cell.middle.length - 1;
  const known = [random, scripted].filter(v => v !== undefined);
  const settled = cell.low.slice(Math.floor(cell.low.length / 5));
  let low = Math.min(...known, ...settled), high = Math.max(...known, ...cell.high);
  const gap = high - low || 1; low -= 0.06 * gap; high += 0.1 * gap;
  const levels = [['random', random, true], ['scripted', scripted, false]].filter(([, v]) => v !== undefined)
    .map(([text, value, end]) => ({text: `${text} ${signed(value)}`, value, end}));
  const [mean, least, most] = cell.final, many_seeds = cell.seeds > 1;
  const seeds = many_seeds ? `mean of ${cell.seeds} seeds, shaded from the lowest to the highest` : 'one seed';
  const label = `Learning curve of ${cell.methodLabel}, ${cell.budgetLabel}: team return ${signed(cell.middle[0])} at ` +
    `${cell.steps[0].toLocaleString('en')} steps, ${signed(cell.middle[last])} at ${cell.steps[last].toLocaleString('en')}.` +
    levels.map(({text}) => ` Reference: ${text}.`).join('');
  chart(svg, {height: 270, x: [0, cell.steps[last]], y: [low, high], lines, levels, label,
    ticks: {x: round(0, cell.steps[last]), y: round(low, high)},
    names: {x: many, y: v => signed(v, Math.abs(v) % 1 ? 1 : 0), under: 'environment steps'}});
  caption.textContent = `Team return over training, ${seeds}${lines.length > 1 ? '; dotted: without messages, trained alike' : ''}.` +
    ` Every point is of ${cell.scored[0]} starts. At the end, on ${cell.scored[1].toLocaleString('en')} starts: ` +
    signed(mean, 2) + (many_seeds ? ` (${signed(least, 2)} to ${signed(most, 2)}).` : '.');
}

// What was said, and what can be made of it -----------------------------------------------------------------------------

const spoken = (channel, t) => channel.period ? t % channel.period === 0 : t === 0;
const use = (channel, t) => channel.period ? Math.floor(t / channel.period) : 0;

/** What an agent sent at t, split where the noise was saved; `made` is missing where saved digits cannot tell it. */
function message(cell, episode, agent, t) {
  const {channel} = cell, sent = episode.released[t][agent];
  if (cell.kind === 'silent' || !sent.length) return null;
  if (cell.kind === 'free' || cell.kind === 'receiver') return {sent, made: sent, noise: null, fresh: spoken(channel, t)};
  const noise = episode.noise && episode.noise[use(channel, t)][agent];
  // Four digits were saved: beside noise in the hundreds they do not reach down to a message.
  const lost = noise && Math.max(...sent.map(Math.abs)) * 1e-3 > channel.clip_norm / 5;
  const made = noise && !lost ? sent.map((value, k) => value - noise[k]) : null;
  return {sent, noise, made, fresh: spoken(channel, t), lost};
}

/** The likeliest content of what was heard up to t: the allowed message, or the symbol, nearest to the mean of all. */
function guess(cell, episode, agent, t) {
  const {channel} = cell, heard = [], now = message(cell, episode, agent, t);
  if (!now) return null;
  if (cell.kind === 'free' || cell.kind === 'receiver') return {shown: now.sent, count: t + 1};
  for (let s = 0; s <= t; s++) if (spoken(channel, s)) heard.push(message(cell, episode, agent, s));
  const mean = parts => parts[0].map((_, k) => sum(parts.map(part => part[k])) / parts.length);
  const known = heard.every(one => one.made), about = mean(heard.map(one => one.sent));
  const truth = known ? mean(heard.map(one => one.made)) : null;
  if (channel.alphabet) {
    const best = values => values.indexOf(Math.max(...values));
    const symbol = best(about), shown = about.map((_, k) => k === symbol ? 1 : 0);
    return {shown, symbol, right: truth ? best(truth) === symbol : null, count: heard.length};
  }
  const shown = about.map(value => value * Math.min(1, channel.clip_norm / (length(about) || 1)));
  const signs = truth ? sum(truth.map((value, k) => Math.sign(value) === Math.sign(shown[k]) ? 1 : 0)) : null;
  return {shown, signs, of: shown.length, count: heard.length};
}

function guessed(cell, found) {
  const from = found.count === 1 ? 'from one message' : `from ${found.count} messages`;
  if (cell.kind === 'free' || cell.kind === 'receiver') return 'a listener hears it exactly';
  if (found.symbol !== undefined) {
    const odds = found.count === 1 ? `, which is right with probability ${cell.channel.right.toFixed(2)}` : '';
    if (found.right === null) return `a listener’s best guess ${from} is symbol ${found.symbol}${odds}`;
    const sure = found.right ? 'which is right' : 'which is wrong';
    return `a listener’s best guess ${from} is symbol ${found.symbol}, ${sure}`;
  }
  return found.signs === null ? 'how good a guess would be cannot be told from the saved digits'
    : `a listener’s best guess ${from} has ${found.signs} of ${found.of} signs right (blind: half)`;
}

function described(cell, episode, t) {
  const lines = [`Step ${t + 1} of ${episode.rewards.length}. Reward ${signed(episode.rewards[t], 2)}, ` +
    `return so far ${signed(sum(episode.rewards.slice(0, t + 1)))}.`];
  for (let i = 0; i < episode.agents; i++) {
    const said = message(cell, episode, i, t);
    if (!said) { lines.push('Nothing is sent.'); break; }
    const found = guess(cell, episode, i, t);
    let words;
    if (!said.fresh) words = 'sends nothing new; the others hold its last message';
    else if (cell.channel.alphabet && said.sent.every(value => value === 0 || value === 1)) {
      const held = said.sent.flatMap((value, k) => value ? [k] : []);
      words = `sends symbol${held.length > 1 ? 's' : ''} ${held.join(', ')}`;
    }
    else {
      words = `sends ${said.sent.length} numbers of norm ${length(said.sent).toFixed(2)}`;
      if (said.made && said.noise) words += `, of which the message is ${length(said.made).toFixed(2)} and the noise ` +
        length(said.noise).toFixed(2);
      else if (said.lost) words += ', nearly all of it noise';
    }
    lines.push(`Agent ${i} ${words}; ${guessed(cell, found)}.`);
  }
  return lines.join('\n');
}

// Canvas ----------------------------------------------------------------------------------------------------------------

function fit(canvas, height) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth || 300;
  canvas.width = width * ratio; canvas.height = height(width) * ratio; canvas.style.height = height(width) + 'px';
  const pen = canvas.getContext('2d'); pen.setTransform(ratio, 0, 0, ratio, 0, 0); return [pen, width, height(width)];
}

/** A message as bars around a middle line. */
function bars(pen, x, y, width, height, values, top, colour) {
  pen.fillStyle = tone('--paper'); pen.strokeStyle = tone('--line'); pen.lineWidth = 1;
  pen.beginPath(); pen.rect(x, y, width, height); pen.fill(); pen.stroke();
  const each = width / values.length, middle = y + height / 2;
  pen.fillStyle = colour;
  values.forEach((value, k) => {
    const size = Math.max(-1, Math.min(1, value / (top || 1))) * (height / 2 - 1);
    pen.fillRect(x + k * each + 1, middle - Math.max(size, 0), Math.max(each - 2, 1), Math.max(Math.abs(size), 0.8));
  });
}

const between = (a, b, share) => a.map((value, k) => value + share * (b[k] - value));

/** The world at t + share of a step, with messages on their way to everybody else. */
function scene(canvas, cell, episode, t, share, travel) {
  const [pen, width, height] = fit(canvas, w => Math.min(w, 460)), side = Math.min(width, height);
  const reach = Math.max(1.05, ...episode.places.flat(2).map(Math.abs).map(x => x + 0.12));
  const X = x => width / 2 + x / reach * side / 2, Y = y => height / 2 - y / reach * side / 2;
  const next = Math.min(t + 1, episode.places.length - 1);
  const places = episode.places[t].map((place, i) => between(place, episode.places[next][i], share));
  pen.clearRect(0, 0, width, height); pen.font = '600 12px system-ui, sans-serif'; pen.textAlign = 'center';
  const order = episode.bodies.map((_, i) => i).sort((a, b) => (a < episode.agents) - (b < episode.agents));
  for (const i of order) {
    const body = episode.bodies[i], [x, y] = places[i], r = Math.max(body.radius / reach * side / 2, 4);
    const colour = `rgb(${body.colour.map(part => Math.round(255 * part))})`;
    pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = 2; pen.globalAlpha = 0.45; pen.beginPath();
    for (let s = Math.max(0, t - 8); s <= t; s++) pen.lineTo(X(episode.places[s][i][0]), Y(episode.places[s][i][1]));
    pen.lineTo(X(x), Y(y)); pen.stroke(); pen.globalAlpha = 1; pen.beginPath();
    if (body.shape === 'square') pen.rect(X(x) - r, Y(y) - r, 2 * r, 2 * r); else pen.arc(X(x), Y(y), r, 0, 7);
    pen.fill(); pen.strokeStyle = tone('--ink'); pen.lineWidth = i < episode.agents ? 1.6 : 0.8; pen.stroke();
    if (!body.label) continue;
    const roomy = r >= 9, bright = sum(body.colour) > 1.7;
    pen.fillStyle = roomy ? (bright ? '#111' : '#fff') : tone('--ink');
    pen.fillText(body.label, X(x), roomy ? Y(y) + 4 : Y(y) - r - 4);
  }
  for (let i = 0; i < episode.agents; i++) {
    const said = message(cell, episode, i, t);
    if (!said || !said.fresh) continue;
    const top = Math.max(...said.sent.map(Math.abs));
    for (let j = 0; j < episode.agents; j++) if (i !== j) {
      const [ax, ay] = places[i], [bx, by] = places[j], from = [X(ax), Y(ay)], to = [X(bx), Y(by)];
      pen.strokeStyle = tone('--faint'); pen.globalAlpha = 0.5; pen.lineWidth = 1; pen.setLineDash([2, 4]);
      pen.beginPath(); pen.moveTo(...from); pen.lineTo(...to); pen.stroke(); pen.setLineDash([]); pen.globalAlpha = 1;
      const [mx, my] = between(from, to, 0.18 + 0.64 * travel), far = length([to[0] - from[0], to[1] - from[1]]) || 1;
      const [px, py] = [(to[1] - from[1]) / far * 13, (from[0] - to[0]) / far * 13]; // those that meet keep to one side
      bars(pen, mx + px - 17, my + py - 9, 34, 18, said.sent, top, tone('--ink'));
    }
  }
  canvas.setAttribute('aria-label', `Scene at step ${t + 1}: ` + episode.places[t].slice(0, episode.agents)
    .map(([x, y], i) => `agent ${i} at ${signed(x, 2)}, ${signed(y, 2)}`).join('; ') + '.');
}

/** Each agent's message: as made, the noise, what was sent, and what a listener makes of all so far. */
function talk(canvas, cell, episode, t) {
  const rows = cell.kind === 'silent' ? 0 : episode.agents, tall = 62;
  const [pen, width] = fit(canvas, () => 30 + Math.max(rows, 1) * tall);
  pen.clearRect(0, 0, width, 9999); pen.font = '11px system-ui, sans-serif'; pen.textAlign = 'left';
  canvas.setAttribute('aria-label', 'The messages of this step as bars; the text of the step says the same in words.');
  pen.fillStyle = tone('--ink');
  if (!rows) { pen.fillText('nothing is sent', 10, 24); return; }
  const left = 26, gap = 8, wide = (width - left - 4 * gap) / 4, place = k => left + k * (wide + gap);
  ['as made', '+ noise', '= sent', 'guess so far'].forEach((name, k) => pen.fillText(name, place(k), 18));
  const middle = (words, k, y) => { pen.fillStyle = tone('--faint'); pen.textAlign = 'center';
    pen.fillText(words, place(k) + wide / 2, y + 24); pen.textAlign = 'left'; };
  for (let i = 0; i < rows; i++) {
    const said = message(cell, episode, i, t), found = guess(cell, episode, i, t), y = 26 + i * tall;
    pen.fillStyle = tone('--ink'); pen.font = '600 12px system-ui, sans-serif'; pen.fillText(String(i), 10, y + 24);
    pen.font = '11px system-ui, sans-serif'; pen.globalAlpha = said.fresh ? 1 : 0.4;
    const noisy = cell.kind === 'true' || cell.kind === 'untrue', largest = v => Math.max(...v.map(Math.abs), 1e-9);
    const shown = [[said.made, '--accent'], [said.noise, '--undecided'], [said.sent, '--ink'], [found.shown, '--contradicted']];
    const alike = said.made ? Math.max(largest(said.made), largest(found.shown)) : largest(found.shown);
    shown.forEach(([values, colour], k) => {
      if (!values) { middle(k === 1 && !noisy ? (cell.kind === 'free' ? 'none' : 'at receiver') : said.lost ? 'too small' : 'not saved', k, y); return; }
      if (k === 3) pen.globalAlpha = 1;
      const top = k === 0 || k === 3 ? alike : largest(values);
      bars(pen, place(k), y, wide, 40, values, top, tone(colour));
      pen.fillStyle = tone('--faint'); pen.fillText('±' + Number(top.toPrecision(2)), place(k), y + 52);
    });
    pen.globalAlpha = 1;
  }
}

// The explorer ----------------------------------------------------------------------------------------------------------

function marks(cell, episode) {
  if (cell.kind === 'silent') return '';
  const raw = cell.kind === 'free' || cell.kind === 'receiver' ? 'Raw messages are shown here, as any listener hears them.'
    : episode.noise ? 'Raw messages are shown here: this is a simulation, and in use nobody but the sender would see them.' : '';
  const late = cell.kind === 'receiver' ? ' Shown is what leaves the sender; the receiver’s own noise was not saved.' : '';
  const asked = cell.method.startsWith('i2c') ? ' Whom I2C asked was not saved, so messages are drawn to everybody.' : '';
  return raw + late + asked;
}

function list(node, lines) {
  node.replaceChildren(...lines.map(line => Object.assign(document.createElement('li'), {textContent: line})));
}

function explorer(root, known) {
  const find = selector => root.querySelector(selector), named = name => find(`[name=${name}]`);
  const [task, method, budget, example] = ['task', 'method', 'budget', 'episode'].map(named), slider = find('input');
  const [back, play, on] = ['back', 'play', 'on'].map(named), still = matchMedia('(prefers-reduced-motion: reduce)');
  let playing = false, begun = 0;

  function fill(select, options, wanted) {
    const unique = new Map();
    for (const [value, text, there] of options) if (!unique.has(value) || there) unique.set(value, [text, there]);
    select.replaceChildren(...[...unique].map(([value, [text, there]]) => {
      const option = new Option(there ? text : `${text} (not trained)`, value); option.disabled = !there; return option;
    }));
    const there = [...unique].filter(([, [, there]]) => there).map(([value]) => value);
    select.value = there.includes(wanted) ? wanted : there[0];
  }
  const options = (what, fits) => [...known.cells.filter(fits).map(c => [c[what], c[what + 'Label'], true]),
    ...known.missing.filter(fits).map(c => [c[what], c[what + 'Label'], false])];
  const cell = () => known.cells.find(c => c.task === task.value && c.method === method.value && c.budget === budget.value);
  const episode = () => cell().episodes[Number(example.value)];
  const step = () => Number(slider.value);

  function choose(wanted) {
    stop();
    fill(task, Object.entries(known.tasks).map(([name, {title}]) => [name, title, true]), wanted[0]);
    fill(method, options('method', c => c.task === task.value), wanted[1]);
    fill(budget, options('budget', c => c.task === task.value && c.method === method.value), wanted[2]);
    const now = cell();
    fill(example, now.episodes.map((_, i) => [String(i), `${i + 1} of ${now.episodes.length}`, true]), example.value);
    find('.played').hidden = !now.episodes.length; find('.none').hidden = now.episodes.length > 0;
    find('.headline').textContent = now.statement.headline; find('.headline').dataset.kind = now.kind;
    list(find('.statement ul'), now.statement.lines);
    rewind();
  }
  function rewind() {
    slider.value = 0;
    if (cell().episodes.length) {
      slider.max = episode().rewards.length - 1; find('.mark').textContent = marks(cell(), episode());
    }
    paint();
  }
  function listen(now, t) {
    const svg = find('.listen'), caption = find('.listen + figcaption');
    const blind = 1 / now.secrets, two = now.secrets === 2;
    const what = two ? 'a yes-or-no question about an agent' : `which of ${now.secrets} values a secret has`;
    const some = now.caps.length > 0;
    svg.style.display = some ? '' : 'none';
    const lines = [...now.heard];
    if (!some) lines.push('Nothing is sent: a listener on the messages can only guess blindly.');
    else {
      const cap = (100 * now.caps[t]).toFixed(1), count = use(now.channel, t) + 1;
      const heard_so_far = `Up to this step ${count} message${count > 1 ? 's' : ''} of an agent could be heard: `;
      lines.unshift(heard_so_far + (now.caps[t] === 1 ? 'nothing hinders a listener from being right always.'
        : `nobody ${two ? 'answers' : 'tells'} ${what}, all answers as likely, right in more than ${cap} % of cases. ` +
          `Blind: ${(100 * blind).toFixed(0)} %.`));
      if (!now.heard.length) lines.push('No eavesdropper was trained on these teams; this is the most that any could reach.');
      const heard = now.accuracy.length ? sum(now.accuracy) / now.accuracy.length : null, last = now.caps.length;
      chart(svg, {height: 210, x: [1, last], y: [blind - 0.04, 1.04], now: [t + 1, now.caps[t]],
        lines: [{points: now.caps.map((value, i) => [i + 1, value]), colour: tone('--contradicted')}],
        levels: [{value: blind, text: 'blind', end: true},
          ...(heard === null ? [] : [{value: heard, text: `trained eavesdroppers, whole episode: ${(100 * heard).toFixed(1)} %`}])],
        ticks: {x: round(1, last), y: [0.4, 0.6, 0.8, 1].filter(v => v >= blind)},
        names: {x: v => v, y: v => Math.round(100 * v) + ' %', under: 'steps heard'},
        label: `The most that any listener can get right about ${what}: ${(100 * now.caps[0]).toFixed(1)} % after the first ` +
          `step, ${(100 * now.caps[last - 1]).toFixed(1)} % after the last.`});
    }
    caption.textContent = some ? `The most that any listener can get right about ${what}, by the noise alone.` : '';
    list(find('.heard'), lines);
  }
  const moved = (travel, share) => scene(find('.stage'), cell(), episode(), step(), share, travel);
  /** Everything that follows the step; the slider keeps it within the episode. */
  function go(wanted) {
    slider.value = wanted; const now = cell(), t = step();
    moved(0.4, 0); talk(find('.words'), now, episode(), t); listen(now, t);
    find('.told').textContent = described(now, episode(), t);
    slider.setAttribute('aria-valuetext', `step ${t + 1} of ${episode().rewards.length}`);
    root.dataset.step = t;
  }
  function paint() {
    const now = cell();
    curve(find('.curve'), find('.curve + figcaption'), now, known.tasks[now.task], known.cells[now.silent]);
    if (now.episodes.length) go(step());
  }
  function stop() {
    playing = false; play.textContent = 'play'; find('.told').setAttribute('aria-live', 'polite');
  }
  function tick(clock) {
    if (!playing) return;
    const pace = still.matches ? 900 : 420, share = Math.min(1, (clock - begun) / pace);
    if (share >= 1) {
      if (step() >= Number(slider.max)) { stop(); go(step()); return; }
      go(step() + 1); begun = clock;
    } else if (!still.matches) moved(share, share);
    requestAnimationFrame(tick);
  }
  play.addEventListener('click', () => {
    if (playing) { stop(); go(step()); return; }
    playing = true; play.textContent = 'pause'; find('.told').setAttribute('aria-live', 'off');
    if (step() >= Number(slider.max)) go(0);
    begun = performance.now(); requestAnimationFrame(tick);
  });
  slider.addEventListener('input', () => { stop(); go(step()); });
  back.addEventListener('click', () => { stop(); go(step() - 1); });
  on.addEventListener('click', () => { stop(); go(step() + 1); });
  for (const select of [task, method, budget]) {
    select.addEventListener('change', () => choose([task.value, method.value, budget.value]));
  }
  example.addEventListener('change', () => { stop(); rewind(); });
  addEventListener('resize', paint); matchMedia('(prefers-color-scheme: dark)').addEventListener('change', paint);
  choose(known.first);
}
document.querySelectorAll('.explorer').forEach(root =>
  explorer(root, JSON.parse(document.getElementById(root.dataset.explorer).textContent)));
