// ---- colours of the points: of the scans, of the files, by distance or by height

const NO_DISTANCE = 65535;
const measured = () => scene.scans.filter((scan) => scan.shown && scan.distances.length);
const distancesOf = (scan) => scan.distances[Math.min(scan.choice, scan.distances.length - 1)];
// Scans without distances are drawn behind the coloured ones.
const isBackground = (scan) => state.mode === "distance" && measured().length > 0 && !scan.distances.length;
const shading = () => ({ scans: 1, own: 0.25, distance: 0.45, height: 0.6 })[state.mode];

// Colour of a value from 0 to 1.
function heat(value) {
  const at = Math.max(0, Math.min(1, value)) * (scene.heat.length - 1), k = Math.min(Math.floor(at), scene.heat.length - 2);
  return scene.heat[k].map((c, j) => c + (at - k) * (scene.heat[k + 1][j] - c));
}
const heatTable = Array.from({ length: 256 }, (_, k) => heat(k / 255).map(Math.round));

// Counts of the distances of all shown scans, and the values below which a share of them is.
function distanceSummary() {
  const scans = measured(), counts = new Uint32Array(NO_DISTANCE + 1), step = distancesOf(scans[0]).step;
  let total = 0;
  for (const scan of scans) for (const value of distancesOf(scan).values) counts[value]++, total++;
  const known = total - counts[NO_DISTANCE];
  const quantile = (share) => {
    for (let k = 0, sum = 0; k < NO_DISTANCE; k++) if ((sum += counts[k]) >= share * known) return k * step;
    return 0;
  };
  return { counts, step, total, known, median: quantile(0.5), most: quantile(0.95) };
}

function heights() {
  const values = scene.scans.map((scan) => {
    const m = pose(scan, 1), up = camera.basis[2];
    return Float32Array.from({ length: scan.points.length / 3 }, (_, k) => dot(transform(m, three(scan.points, k)), up));
  });
  const sorted = Float32Array.from(values.flatMap((part) => Array.from(part.filter((_, k) => k % 7 === 0)))).sort();
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  return { values, low: at(0.01), high: at(0.99) };
}

let cutRange = null;  // lowest and highest point along the direction that points up
function cutHeight() {
  if (state.cut >= 1) return Infinity;
  if (!cutRange) { const { low, high } = heights(); cutRange = [low, high]; }
  return cutRange[0] + state.cut * (cutRange[1] - cutRange[0]);
}

// Computes the colours of all points for the chosen mode.
function recolour() {
  const summary = state.mode === "distance" && measured().length ? distanceSummary() : null;
  const levels = state.mode === "height" ? heights() : null;
  if (summary && !state.range) {
    const limit = summary.step * (NO_DISTANCE - 1);
    state.range = Math.min(limit, roundBelow(1.6 * (summary.most || summary.step)));
    document.getElementById("range").value = 1 + Math.log10(state.range / limit) / 3;
  }
  scene.scans.forEach((scan, number) => {
    const count = scan.points.length / 3, tints = new Uint8Array(3 * count);
    let colour = null;
    if (state.mode === "own" && scan.own) tints.set(scan.own);
    else if (levels) {
      const { values, low, high } = levels;
      colour = (k) => heatTable[Math.max(0, Math.min(255, Math.round(255 * (values[number][k] - low) / (high - low || 1))))];
    } else if (summary && scan.distances.length) {
      const { values, step } = distancesOf(scan);
      colour = (k) => values[k] === NO_DISTANCE ? scene.no_partner : heatTable[Math.min(255, Math.round(255 * values[k] * step / state.range))];
    } else colour = () => summary ? [228, 228, 228] : scan.colour;
    if (colour) for (let k = 0; k < count; k++) tints.set(colour(k), 3 * k);
    if (scan.buffers.tints) gl.deleteBuffer(scan.buffers.tints);
    scan.buffers.tints = state.mode === "scans" ? null : buffer(tints);
  });
  document.getElementById("heat").hidden = !summary;
  if (summary) drawHistogram(summary);
  redraw();
}

// Histogram of the distances up to the end of the colour bar, with the median and the 95 % quantile.
function drawHistogram({ counts, step, total, known, median, most }) {
  const plot = document.getElementById("histogram"), ratio = devicePixelRatio;
  const width = plot.width = Math.round(plot.clientWidth * ratio), height = plot.height = Math.round(plot.clientHeight * ratio);
  const pen = plot.getContext("2d"), bins = new Float64Array(44), top = 16 * ratio;
  for (let k = 0; k < NO_DISTANCE; k++) if (counts[k]) bins[Math.min(bins.length - 1, Math.floor(k * step / state.range * bins.length))] += counts[k];
  const highest = Math.max(...bins) || 1;
  bins.forEach((count, k) => {
    pen.fillStyle = `rgb(${heat((k + 0.5) / bins.length)})`;
    const tall = (height - top) * count / highest;
    pen.fillRect(k * width / bins.length, height - tall, width / bins.length - ratio, tall);
  });
  pen.font = `${11 * ratio}px system-ui, sans-serif`;
  for (const [value, name] of [[median, "median"], [most, "95 %"]]) {
    const x = Math.min(1, value / state.range) * width, wide = pen.measureText(name).width;
    pen.fillStyle = "#333";
    pen.fillRect(x - ratio / 2, top - 2 * ratio, ratio, height);
    pen.fillText(name, Math.max(0, Math.min(width - wide, x - wide / 2)), 11 * ratio);
  }
  document.getElementById("bar").style.background = `linear-gradient(90deg, ${scene.heat.map((c) => `rgb(${c})`)})`;
  document.getElementById("ends").replaceChildren(...["0", `${lengthText(state.range)} and more`].map((text) => {
    const end = document.createElement("span");
    end.textContent = text;
    return end;
  }));
  const near = lengthText(step * (NO_DISTANCE - 1)), whose = scene.scans.length === 2 && !scene.edges.length ? "the source's points" : "the points";
  document.getElementById("summary").textContent = known
    ? `median ${lengthText(median)}, 95 % below ${lengthText(most)}; ${Math.round(100 * known / total)} % of ${whose} have a partner within ${near}`
    : `no point has a partner within ${near}`;
}
