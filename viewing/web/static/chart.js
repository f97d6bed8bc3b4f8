'use strict';
// Line charts by uPlot, in the colours of the page.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function short(value) {
  if (value === null || value === undefined) return '-';
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return String(+value.toPrecision(3));
}

// uPlot keeps every plot until it is destroyed.
const plots = new Set();

function dropRemoved() {
  for (const plot of plots) {
    if (plot.root.isConnected) continue;
    plot.destroy();
    plots.delete(plot);
  }
}

// Draws `data` ([x, y, ...]) into `place`; `series` has {label, stroke, width, fill} for each y.
function chart(place, data, series, {height = 120, time = false, bands = []} = {}) {
  dropRemoved();
  const axis = {
    stroke: colour('--faint'), grid: {stroke: colour('--line'), width: 1}, ticks: {show: false},
    font: '11px system-ui, sans-serif', values: (plot, ticks) => ticks.map(short),
  };
  const xAxis = time ? {...axis, values: undefined} : axis;
  const made = new uPlot({
    width: Math.max(place.clientWidth, 200), height, bands,
    scales: {x: {time}}, legend: {show: false}, cursor: {y: false, points: {size: 5}},
    axes: [{...xAxis, size: 26}, {...axis, size: 44}],
    series: [{}, ...series.map((one) => ({spanGaps: true, points: {show: false}, width: 1.5, ...one}))],
  }, data, place);
  plots.add(made);
  return made;
}
