// The charts of the quality page, by uPlot, and the threshold that can be dragged.

const PERCENT = (value) => (value === null ? "" : `${Math.round(value * 100)} %`);

let drawn = [];

export function drawCharts(main) {
  for (const chart of drawn) chart.destroy();
  drawn = [];
  const source = main.querySelector("[data-charts]");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const all = () => {
    for (const chart of drawn) chart.destroy();
    const colours = coloursNow();
    drawn = [];
    for (const [name, make] of Object.entries(MAKERS)) {
      const place = main.querySelector(`[data-chart="${name}"]`);
      if (place && data[name]) drawn.push(make(place, data[name], colours, main));
    }
  };
  whenLoaded(all);
  document.addEventListener("themechange", all);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  new ResizeObserver(() => {
    for (const chart of drawn) chart.setSize({ width: chart.root.parentElement.clientWidth, height: chart.height });
  }).observe(main);
  const slider = main.querySelector("[data-threshold]");
  slider?.addEventListener("input", () => {
    showPoint(main, data.tradeoff, Number(slider.value));
    for (const chart of drawn) chart.redraw(false);
  });
}

function whenLoaded(act) {
  if (window.uPlot) act();
  else addEventListener("load", act, { once: true });
}

function coloursNow() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: of("ink"), soft: of("soft"), line: of("line"), accent: of("accent"),
    wash: of("accent-wash"), low: of("low"), strong: of("line-strong"),
    several: [of("accent"), of("high"), of("mid"), of("low"), of("soft"), of("ink")],
  };
}

function axes(colours, x, y) {
  const one = { stroke: colours.soft, font: "12px system-ui", grid: { stroke: colours.line, width: 1 }, ticks: { show: false } };
  return [{ ...one, values: (_, ticks) => ticks.map(x), space: 56, size: 30 }, { ...one, values: (_, ticks) => ticks.map(y), size: 48 }];
}

function make(place, options, data, height) {
  const size = { width: place.clientWidth, height };
  return new window.uPlot({ ...size, padding: [8, 22, 0, 0], ...options }, data, place);
}

function unit(from = 0, to = 1) {
  return { time: false, range: () => [from, to] };
}

// Reliability: a dot for each band, its interval, and the diagonal on which the number is right.
function reliability(place, data, colours) {
  const draw = (u) => {
    const { ctx } = u;
    const px = (value) => u.valToPos(value, "x", true);
    const py = (value) => u.valToPos(value, "y", true);
    const scale = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = colours.strong;
    ctx.lineWidth = scale;
    ctx.setLineDash([4 * scale, 4 * scale]);
    line(ctx, px(0), py(0), px(1), py(1));
    ctx.setLineDash([]);
    ctx.strokeStyle = ctx.fillStyle = colours.accent;
    data.x.forEach((x, at) => {
      ctx.globalAlpha = data.count[at] < data.few ? 0.35 : 1;
      ctx.lineWidth = 2 * scale;
      line(ctx, px(x), py(data.low[at]), px(x), py(data.high[at]));
      ctx.beginPath();
      ctx.arc(px(x), py(data.y[at]), 4.5 * scale, 0, 2 * Math.PI);
      ctx.fill();
    });
    ctx.restore();
  };
  const options = {
    legend: { show: false }, cursor: { show: false },
    scales: { x: unit(), y: unit() },
    axes: axes(colours, (v) => v.toFixed(1), PERCENT),
    series: [{}, { paths: () => null, points: { show: false } }],
    hooks: { draw: [draw] },
  };
  return make(place, options, [data.x, data.y], 280);
}

function line(ctx, x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

// Risk against coverage: a point for each threshold at which the coverage is another one.
function tradeoff(place, data, colours, main) {
  const kept = [];
  for (let at = data.threshold.length - 1, last = 0; at >= 0; at--) {
    if (data.coverage[at] > last && data.risk[at] !== null) {
      kept.push(at);
      last = data.coverage[at];
    }
  }
  const pick = (name) => kept.map((at) => data[name][at]);
  const top = Math.min(1, Math.max(0.1, ...pick("high").map((v) => v * 1.05)));
  const draw = (u) => {
    const at = indexOf(data, Number(main.querySelector("[data-threshold]").value));
    if (data.risk[at] === null) return;
    const { ctx } = u;
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle = colours.ink;
    ctx.lineWidth = devicePixelRatio;
    const x = u.valToPos(data.coverage[at], "x", true);
    line(ctx, x, u.bbox.top, x, u.bbox.top + u.bbox.height);
    ctx.beginPath();
    ctx.arc(x, u.valToPos(data.risk[at], "y", true), 5 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.restore();
  };
  const plain = { points: { show: false } };
  const options = {
    legend: { show: false }, cursor: { show: false },
    scales: { x: unit(), y: unit(0, top) },
    axes: axes(colours, PERCENT, PERCENT),
    series: [{}, { ...plain, width: 0 }, { ...plain, width: 0 }, { ...plain, stroke: colours.accent, width: 2 }],
    bands: [{ series: [2, 1], fill: colours.wash }],
    hooks: { draw: [draw] },
  };
  return make(place, options, [pick("coverage"), pick("low"), pick("high"), pick("risk")], 220);
}

const FEW_POINTS = 8; // that a line alone would hardly show, or not at all

function time(place, data, colours) {
  const series = data.series.map(({ name, values }, at) => ({
    label: name, stroke: colours.several[at % colours.several.length], width: 2, spanGaps: true,
    points: { show: values.filter((value) => value !== null).length < FEW_POINTS, size: 7 }, value: (_, value) => (value === null ? "–" : value.toFixed(2)),
  }));
  const moment = (seconds) => new Date(seconds * 1000);
  const days = (data.at.at(-1) - data.at[0]) / 86_400;
  const label = (seconds) =>
    days > 2 ? moment(seconds).toLocaleDateString([], { day: "numeric", month: "short" })
             : moment(seconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const options = {
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: false }, y: unit() },
    axes: axes(colours, label, (v) => v.toFixed(1)),
    series: [{ label: "", value: (_, value) => (value === null ? "" : moment(value).toLocaleString()) }, ...series],
  };
  return make(place, options, [data.at, ...data.series.map(({ values }) => values)], 220);
}

const MAKERS = { reliability, tradeoff, time };

// The threshold

function indexOf(data, threshold) {
  return Math.round(threshold * (data.threshold.length - 1));
}

function amount(value) {
  if (value === null) return "–";
  if (value < 10 && value > 0 && !Number.isInteger(value)) return value.toFixed(1);
  return Math.round(value).toLocaleString("en-US");
}

function share(value) {
  return value === null ? "–" : `${(value * 100).toFixed(1)} %`;
}

function showPoint(main, data, threshold) {
  const at = indexOf(data, threshold);
  const risk = data.risk[at];
  const told = {
    threshold: threshold.toFixed(2),
    coverage: share(data.coverage[at]),
    risk: share(risk),
    span: risk === null ? "too few labels" : `${share(data.low[at])} to ${share(data.high[at])}`,
    errors: amount(data.errors[at]),
    load: amount(data.load[at]),
  };
  for (const [name, text] of Object.entries(told)) {
    main.querySelector(`[data-at="${name}"]`).textContent = text;
  }
}
