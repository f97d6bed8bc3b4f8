'use strict';
// Draws the graph as SVG. Groups come with their columns; what flows back is drawn below what flows on.

const SVG = 'http://www.w3.org/2000/svg';
const BOX = {width: 196, height: 108, across: 140, down: 34, margin: 22};

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function text(x, y, words, kind = '', anchor = 'start') {
  return svg('text', {x, y, class: kind, 'text-anchor': anchor}, words);
}

function rateText(rate) {
  if (rate === null || rate === undefined) return '';
  const digits = rate >= 100 ? 0 : rate >= 10 ? 1 : 2;
  return `${rate.toLocaleString('en', {maximumFractionDigits: digits})}/s`;
}

function places(groups) {
  const columns = [];
  for (const group of groups) (columns[group.column] ||= []).push(group);
  const full = columns.filter(Boolean);
  const height = (column) => column.length * (BOX.height + BOX.down) - BOX.down;
  const most = Math.max(...full.map(height));
  const found = new Map();
  full.forEach((column, i) => {
    column.sort((a, b) => a.roles.includes('evaluator') - b.roles.includes('evaluator'));
    column.forEach((group, k) => found.set(group.name, {
      x: BOX.margin + i * (BOX.width + BOX.across),
      y: BOX.margin + (most - height(column)) / 2 + k * (BOX.height + BOX.down),
      column: i,
    }));
  });
  return {found, width: full.length * (BOX.width + BOX.across) - BOX.across + 2 * BOX.margin, height: most + 2 * BOX.margin};
}

// Whether a group is what the verdict names.
function isBottleneck(group, name) {
  const has = (meter) => group.meters.some(([one]) => one === meter), does = (role) => group.roles.includes(role);
  return {environments: has('environments'), actors: has('environments'),
    learner: has('learner') || (does('actor') && does('learner')),
    inference: has('inference'), batching: has('inference'), replay: does('replay')}[name] || false;
}

function drawBox(group, place, replay, bottleneck) {
  const {x, y} = place, inner = BOX.width - 24;
  const parts = [];
  if (isBottleneck(group, bottleneck)) {
    parts.push(svg('rect', {x: x - 5, y: y - 5, width: BOX.width + 10, height: BOX.height + 10, rx: 13, class: 'named'}));
    parts.push(text(x + BOX.width / 2, y + BOX.height + 20, 'bottleneck', 'named-label', 'middle'));
  }
  parts.push(svg('rect', {x, y, width: BOX.width, height: BOX.height, rx: 9, class: `box ${group.state}`}));
  parts.push(text(x + 12, y + 22, group.name, 'name'));
  parts.push(text(x + 12, y + 38, `${group.nodes.toLocaleString('en')} × ${group.runs || 'node'}`, 'soft'));
  const word = {busy: 'busy', idle: 'idle', held: 'held back'}[group.state] || '';
  parts.push(text(x + BOX.width - 12, y + 22, word, 'soft', 'end'));
  const meters = group.meters.map(([name, share]) => [name, share, '']);
  if (group.roles.includes('replay') && replay.fill !== null && replay.capacity) {
    const held = Math.round(replay.fill * replay.capacity).toLocaleString('en');
    meters.push([`${held} of ${replay.capacity.toLocaleString('en')} unrolls`, replay.fill,
      replay.is_queue && replay.fill >= 0.9 ? 'full' : 'fill']);
  }
  meters.slice(0, 2).forEach(([name, share, kind], k) => {
    const top = y + 58 + k * 24, level = Math.min(Math.max(share, 0), 1);
    parts.push(text(x + 12, top, name, 'soft'));
    parts.push(text(x + BOX.width - 12, top, `${Math.round(100 * share)}%`, 'soft', 'end'));
    parts.push(svg('rect', {x: x + 12, y: top + 5, width: inner, height: 5, rx: 2.5, class: 'meter'}));
    parts.push(svg('rect', {x: x + 12, y: top + 5, width: inner * level, height: 5, rx: 2.5, class: `level ${kind}`}));
  });
  return svg('g', {}, svg('title', {}, group.machine || group.name), ...parts);
}

function drawEdge(edge, from, to, paired, bottom) {
  const on = to.column > from.column, near = Math.abs(to.column - from.column) === 1;
  let path, label;
  if (near) {
    const shift = paired ? (on ? -20 : 20) : 0;
    const x0 = on ? from.x + BOX.width : from.x, x1 = on ? to.x - 7 : to.x + BOX.width + 7;
    const y0 = from.y + BOX.height / 2 + shift, y1 = to.y + BOX.height / 2 + shift, middle = (x0 + x1) / 2;
    path = `M${x0} ${y0} C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
    label = [middle, (y0 + y1) / 2 + (shift > 0 ? 20 : shift ? -24 : -16)];
  } else {
    const x0 = from.x + BOX.width * 0.5, x1 = to.x + BOX.width * 0.5;
    const y0 = from.y + BOX.height, y1 = to.y + BOX.height + 7;
    path = `M${x0} ${y0} C${x0} ${bottom} ${x1} ${bottom} ${x1} ${y1}`;
    label = [(x0 + x1) / 2, (y0 + y1) / 8 + bottom * 0.75 + 2];
  }
  const wide = edge.rate > 0 ? 1.4 + Math.min(Math.log10(1 + edge.rate), 5) * 0.45 : 1.2;
  const drawn = svg('path', {d: path, class: 'edge', 'stroke-width': wide, 'marker-end': 'url(#head)'});
  const words = svg('text', {x: label[0], y: label[1], class: 'label soft', 'text-anchor': 'middle'});
  const rate = rateText(edge.rate);
  words.append(svg('tspan', {}, edge.what));
  if (rate) words.append(svg('tspan', {class: 'rate', x: label[0], dy: 14}, rate));
  return [drawn, words];
}

function drawGraph(run) {
  const groups = run.groups.filter((group) => !group.reports_only || !run.edges.length);
  const named = new Set(groups.map((group) => group.name));
  const edges = run.edges.filter((edge) => named.has(edge.source) && named.has(edge.target));
  const {found, width, height} = places(groups);
  const far = edges.some((e) => Math.abs(found.get(e.source).column - found.get(e.target).column) !== 1);
  const bottom = height + (far ? 76 : 0);
  const picture = svg('svg', {viewBox: `0 0 ${width} ${bottom}`, width, height: bottom, role: 'img',
    'aria-label': 'Groups of nodes and what flows between them'});
  picture.append(svg('defs', {}, svg('marker', {id: 'head', viewBox: '0 0 8 8', refX: 5, refY: 4, markerWidth: 7,
    markerHeight: 7, markerUnits: 'userSpaceOnUse', orient: 'auto'}, svg('path', {d: 'M0 0 8 4 0 8z', class: 'head'}))));
  const labels = [];
  for (const edge of edges) {
    const paired = edges.some((other) => other.source === edge.target && other.target === edge.source);
    const [line, words] = drawEdge(edge, found.get(edge.source), found.get(edge.target), paired, bottom + 10);
    picture.append(line);
    labels.push(words);
  }
  for (const group of groups) picture.append(drawBox(group, found.get(group.name), run.replay, run.verdict.bottleneck));
  picture.append(...labels);
  return picture;
}
