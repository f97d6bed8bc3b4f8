'use strict';
// Polls the state of the runs and draws it. All text goes in as text, never as HTML.

const PERIOD = 2000;
const LABELS = {busy: 'busy', idle: 'idle', held: 'held back', unknown: 'not measured'};
const LANES = ['restart', 'resume', 'replacement', 'evaluation', 'checkpoint', 'compilation', 'warning'];
const SHOWN_FIRST = ['stepping_share', 'waiting_share', 'actor_steps_per_second', 'learner_steps_per_second',
  'learner_waiting_share', 'inference_busy_share', 'inference_batch_fill', 'inference_latency_ms', 'replay_size',
  'deferred_requests', 'policy_lag_mean', 'episode_return', 'evaluator_return', 'loss', 'entropy', 'grad_norm'];
const NOT_CURVES = ['seconds', 'time', 'actor_steps', 'environment_frames', 'learner_steps'];
const IN_SUMMARY = ['progress', 'steps/s', 'updates/s', 'episode_return', 'evaluator_return', 'elapsed', 'remaining',
  'bottleneck'];
const COLOURS = ['--c0', '--c1', '--c2', '--c3', '--c4', '--c5'];

const view = {run: 0, node: '', state: null, drawn: {}};
const $ = (id) => document.getElementById(id);

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Redraws a part of the page only if what it shows has changed.
function draw(id, shows, make) {
  const key = JSON.stringify(shows);
  if (view.drawn[id] === key) return;
  view.drawn[id] = key;
  make($(id));
}

async function get(path) {
  const reply = await fetch(path, {credentials: 'same-origin'});
  if (!reply.ok) throw new Error((await reply.text()).trim());
  return reply.json();
}

function figure(run, name) {
  return (run.figures.find(([key]) => key === name) || [])[1];
}

// The sentence with its flags as code, so that no line ends within one.
function flagged(words) {
  return words.split(/(--\w+(?:=\w+)?)/).map((part) => part.startsWith('--') ? h('code', {}, part) : part);
}

function drawTabs(state) {
  draw('tabs', [state.runs.map((run) => [run.name, run.state]), view.run], (place) => {
    place.replaceChildren(...(state.runs.length < 2 ? [] : state.runs.map((run, i) => h('button', {
      'aria-pressed': i === view.run, onclick: () => { view.run = i; view.node = ''; render(); },
    }, run.name))));
  });
}

function drawSummary(run) {
  draw('summary', [run.figures, run.state, run.name], (place) => {
    const stat = (name, label) => figure(run, name) === undefined ? null
      : h('div', {class: 'stat'}, h('b', {}, figure(run, name)), h('span', {}, label));
    const kind = {running: 'live', stopped: 'stopped'}[run.state] || '';
    const bar = h('i');
    bar.style.width = figure(run, 'progress') || '0%';
    place.replaceChildren(
      h('div', {class: 'first'},
        h('h1', {}, run.name, ' ', h('span', {class: `chip ${kind}`}, run.state)),
        h('div', {class: 'where'}, `${run.program} on ${run.env} · ${run.run_dir}`)),
      ...[stat('progress', 'progress'), stat('steps/s', 'steps/s'), stat('updates/s', 'updates/s'),
        stat('episode_return', 'episode return'), stat('evaluator_return', 'evaluator return'),
        stat('elapsed', 'elapsed'), run.state === 'ended' ? null : stat('remaining', 'remaining')].filter(Boolean),
      h('div', {class: 'progress'}, bar));
  });
}

function drawVerdict(run) {
  draw('verdict', run.verdict, (place) => {
    const {bottleneck, sentence, rule} = run.verdict;
    place.className = `verdict ${['none', 'unknown'].includes(bottleneck) ? '' : 'found'}`;
    const words = sentence[0].toUpperCase() + sentence.slice(1);
    place.replaceChildren(h('p', {class: 'kind'}, 'Bottleneck'), h('p', {class: 'sentence'}, ...flagged(`${words}.`)),
      ...(rule ? [h('p', {class: 'rule'}, `Because ${rule}. Means over the last minute of measurements.`)] : []));
  });
}

function drawFigures(run) {
  draw('figures', [run.figures, run.cores], (place) => {
    const rows = run.figures.filter(([name]) => !IN_SUMMARY.includes(name));
    const [used, cores] = run.cores;
    if (used !== null) rows.push(['cores in use', cores ? `${used.toFixed(1)} of ${cores}` : used.toFixed(1)]);
    place.replaceChildren(...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
  });
}

function drawStrips(run) {
  if ($('strips').querySelector('input:focus')) return;  // Somebody is typing.
  draw('strips', [run.nodes, run.groups.map((group) => group.counts), view.node, view.run], (place) => {
    const groups = new Map(), counts = new Map(run.groups.map((group) => [group.name, group.counts]));
    for (const node of run.nodes) {
      const label = node[0].split('/')[0];
      if (!groups.has(label)) groups.set(label, []);
      groups.get(label).push(node);
    }
    place.replaceChildren(...[...groups].map(([label, nodes]) => {
      const count = (state) => counts.get(label)[state] || 0, number = (n) => n.toLocaleString('en');
      const words = ['busy', 'held', 'idle'].filter(count).map((state) => `${number(count(state))} ${LABELS[state]}`);
      const all = Object.values(counts.get(label)).reduce((a, b) => a + b, 0);
      if (nodes.length < all) words.push(`${number(nodes.length)} of ${number(all)} shown, those that differ first`);
      const cells = nodes.map(([name, state, share, restarts]) => h('button', {
        class: `cell ${state}${restarts ? ' restarted' : ''}`, 'aria-pressed': name === view.node,
        'aria-label': `${name}, ${LABELS[state]}`,
        title: `${name}: ${LABELS[state]}${share === null ? '' : `, ${Math.round(100 * share)}%`}` +
          (restarts ? `, ${restarts} restarts` : ''),
        onclick: () => select(name),
      }));
      const asked = nodes.length < all ? h('input', {
        placeholder: `${label}/…`, 'aria-label': `select a node of ${label}`,
        onchange: (event) => {
          const name = event.target.value.trim();
          event.target.blur();
          if (exists(run, name)) select(name);
        },
      }) : null;
      return h('div', {class: 'strip'}, h('div', {class: 'what'}, label, h('span', {}, words.join(', ')), asked),
        h('div', {class: `cells ${nodes.length > 60 ? 'many' : ''}`}, ...cells));
    }));
  });
}

// Whether a run has a node of that name; of a large group, the page has no cell for some nodes.
function exists(run, name) {
  const [label, number] = name.split('/');
  const group = run.groups.find((one) => one.name === label);
  return run.nodes.some(([one]) => one === name) || Boolean(group && /^\d+$/.test(number) && Number(number) < group.nodes);
}

function select(name) {
  view.node = view.node === name ? '' : name;
  location.hash = view.node ? `${view.run}:${view.node}` : '';
  view.drawn.node = '';
  render();
  refreshNode();
}

async function refreshNode() {
  const place = $('node');
  place.hidden = !view.node;
  if (!view.node) return;
  const asked = view.node;
  const node = await get(`node?run=${view.run}&node=${encodeURIComponent(asked)}`);
  if (asked === view.node) drawNode(node);
}

function drawNode(node) {
  draw('node', node, (place) => {
    const process = node.process, facts = [];
    const fact = (label, value) => facts.push(h('div', {}, h('b', {}, value), h('span', {}, label)));
    if (process) {
      const age = view.state.now - process.time;
      fact('does', `${process.doing} for ${short(process.seconds)} s`);
      fact('memory of its own', `${short(process.memory_mib)} MiB`);
      fact('cores', short(node.history.cores.at(-1)));
      fact('open files', short(process.open_files));
      fact('threads', short(process.threads));
      fact('machine', process.host || 'not recorded');
      fact('heartbeat recorded', age < 120 ? `${Math.round(age)} s ago` : new Date(1000 * process.time).toLocaleString());
    }
    fact('restarts', node.restarts.length ? String(node.restarts.length) : 'none');
    const charts = h('div', {class: 'charts'});
    const before = place.querySelector('pre');
    const same = before?.dataset.node === node.name, top = before?.scrollTop;
    const follows = !same || top + before.clientHeight >= before.scrollHeight - 5;
    const log = h('pre', {'data-node': node.name}, node.log || '(the log is empty)');
    place.replaceChildren(h('h2', {}, node.name), h('div', {class: 'facts'}, ...facts), charts,
      h('h2', {}, 'Stacks', h('small', {}, "of its threads, by this command on the launcher's machine")),
      h('code', {class: 'command'}, node.stacks), h('h2', {}), h('h2', {}, 'Last lines of its log'), log);
    const seconds = node.columns.indexOf('seconds');
    const known = node.columns.map((name, i) => [name, i]).filter(([name, i]) =>
      !NOT_CURVES.includes(name) && node.rows.some((row) => row[i] !== null));
    const rank = ([name]) => (SHOWN_FIRST.indexOf(name) + SHOWN_FIRST.length + 1) % (SHOWN_FIRST.length + 1);
    known.sort((a, b) => (SHOWN_FIRST.includes(a[0]) ? rank(a) : 99) - (SHOWN_FIRST.includes(b[0]) ? rank(b) : 99));
    const small = (name, x, y, time) => {
      const last = y.filter((value) => value !== null).at(-1);
      const cell = h('div', {}, h('h3', {}, name, h('b', {}, short(last))));
      charts.append(cell);
      chart(cell, [x, y], [{stroke: colour('--c0'), width: 1.5}], {height: 96, time});
    };
    for (const [name, i] of known.slice(0, 12)) small(name, node.rows.map((row) => row[seconds]), node.rows.map((row) => row[i]));
    if (node.history.time.length > 1) {
      small('cores', node.history.time, node.history.cores, true);
      small('memory_mib', node.history.time, node.history.memory_mib, true);
    }
    log.scrollTop = follows ? log.scrollHeight : top;
  });
}

function drawCurves(state) {
  draw('curves', state.curves, (place) => {
    place.replaceChildren();
    $('curve-kind').textContent = 'episode return over environment frames';
    const tables = [], series = [], bands = [], names = [];
    state.curves.forEach((group, k) => {
      const stroke = colour(COLOURS[k % COLOURS.length]);
      const lines = group.lines.filter(([x]) => x.length);
      const several = Boolean(group.mean);
      for (const line of lines) {
        tables.push(line);
        series.push({stroke, width: several ? 1 : 2, alpha: several ? 0.35 : 1, points: {show: line[0].length < 40, size: 5}});
      }
      if (several) {
        const at = series.length + 1;
        tables.push([group.x, group.mean], [group.x, group.high], [group.x, group.low]);
        series.push({stroke, width: 2.5}, {stroke: 'transparent'}, {stroke: 'transparent'});
        bands.push({series: [at + 1, at + 2], fill: `${stroke}2e`});
      }
      const dash = h('i');
      dash.style.background = stroke;
      const runs = several ? `mean and 95% interval of ${group.averaged} runs, ` : lines.length > 1 ? `${lines.length} runs, ` : '';
      const note = runs + group.kind;
      names.push(h('span', {}, dash, `${group.name} (${lines.length ? note : 'no episode yet'})`));
    });
    $('curve-names').replaceChildren(...names);
    if (!tables.length) return void place.append(h('p', {class: 'empty'}, 'No episode has ended yet.'));
    chart(place, tables.length > 1 ? uPlot.join(tables) : tables[0], series, {height: 280, bands});
  });
}

function drawTimeline(run) {
  draw('timeline', [run.timeline, run.span], (place) => {
    const lanes = LANES.filter((kind) => run.timeline.some((event) => event.kind === kind));
    const times = run.timeline.map((event) => event.time).filter((time) => time !== null);
    const begin = Math.min(run.span[0] ?? Infinity, ...times), end = Math.max(run.span[1] ?? -Infinity, ...times);
    if (!lanes.length || !(end > begin)) {
      $('span').textContent = '';
      return void place.replaceChildren(h('p', {class: 'empty'}, 'Nothing has happened yet.'));
    }
    $('span').textContent = `${new Date(1000 * begin).toLocaleString()} to ${new Date(1000 * end).toLocaleTimeString()}`;
    const width = Math.max(place.clientWidth, 300), left = 110, lane = 24;
    const picture = svg('svg', {width, height: lanes.length * lane + 4, role: 'img', 'aria-label': 'Events over time'});
    lanes.forEach((kind, k) => {
      const y = k * lane + lane / 2;
      const mine = run.timeline.filter((event) => event.kind === kind && event.time !== null);
      picture.append(text(0, y + 4, `${kind}s ${mine.length}`, 'soft'));
      picture.append(svg('line', {x1: left, x2: width, y1: y, y2: y, stroke: 'var(--line)'}));
      for (const event of mine) {
        const x = left + (width - left - 10) * (event.time - begin) / (end - begin);
        picture.append(svg('circle', {cx: x + 4, cy: y, r: 4.5, class: `mark-${kind}`, 'fill-opacity': 0.8},
          svg('title', {}, `${new Date(1000 * event.time).toLocaleTimeString()}  ${event.node}  ${event.text}`)));
      }
    });
    place.replaceChildren(picture);
  });
}

function drawVideo(run) {
  draw('video', [run.video, view.run], (place) => {
    place.hidden = run.video === null;
    if (run.video === null) return void place.replaceChildren();
    const src = `video?run=${view.run}&at=${run.video}`;
    const picture = run.video_name.endsWith('.gif') ? h('img', {src, alt: 'The newest video of the policy'})
      : h('video', {src, controls: '', loop: '', muted: ''});
    place.replaceChildren(h('h2', {}, 'Newest video ', h('small', {}, run.video_name)), picture);
  });
}

function drawDifferences(state) {
  draw('differences', [state.differences, state.runs.map((run) => run.name)], (place) => {
    const rows = Object.entries(state.differences);
    place.hidden = !rows.length;
    place.replaceChildren(h('h2', {}, 'Options that differ'), h('div', {class: 'scroll'}, h('table', {},
      h('tr', {}, h('th'), ...state.runs.map((run) => h('th', {}, run.name))),
      ...rows.map(([name, values]) => h('tr', {}, h('th', {}, `--${name}`), ...values.map((v) => h('td', {}, v)))))));
  });
}

function render() {
  const state = view.state;
  if (!state.runs[view.run]) Object.assign(view, {run: 0, node: ''});
  const run = state.runs[view.run];
  if (view.node && !exists(run, view.node)) view.node = '';
  document.title = `${run.name} · Launchpod`;
  drawTabs(state);
  drawSummary(run);
  drawVerdict(run);
  draw('graph', [run.groups, run.edges, run.replay, run.verdict], (place) => place.replaceChildren(drawGraph(run)));
  drawFigures(run);
  drawStrips(run);
  drawCurves(state);
  drawVideo(run);
  drawTimeline(run);
  drawDifferences(state);
}

async function poll() {
  const chip = $('link');
  try {
    view.state = await get('state');
    render();
    await refreshNode();
    const live = view.state.runs.some((run) => run.state === 'running');
    chip.textContent = live ? 'live' : 'up to date';
    chip.className = `chip ${live ? 'live' : ''}`;
  } catch (error) {
    chip.textContent = `no answer: ${error.message}`;
    chip.className = 'chip lost';
  }
  document.documentElement.dataset.ready = 'yes';
  setTimeout(poll, document.hidden ? 5 * PERIOD : PERIOD);
}

function begin() {
  // The cookie has the token now; the address need not show it.
  history.replaceState(null, '', location.pathname + location.hash);
  const [run, node] = decodeURIComponent(location.hash.slice(1)).split(':');
  if (node) Object.assign(view, {run: Number(run) || 0, node});
  $('legend').replaceChildren(...['busy', 'idle', 'held'].map((state) =>
    h('span', {class: 'key'}, h('i', {class: state}), LABELS[state])));
  for (const media of [matchMedia('(prefers-color-scheme: dark)')]) {
    media.addEventListener('change', () => { view.drawn = {}; if (view.state) render(); });
  }
  addEventListener('resize', () => { delete view.drawn.curves; delete view.drawn.timeline; if (view.state) render(); });
  poll();
}

begin();
