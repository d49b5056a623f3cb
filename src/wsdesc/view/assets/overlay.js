// ---- over the picture: scale bar, axes of the files, clicked points

const overlay = document.getElementById("overlay");
const AXES = [["x", "#c8322b"], ["y", "#2f8f3a"], ["z", "#2b5fc8"]];

function svg(name, attributes, text = "") {
  const element = document.createElementNS("http" + "://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  element.textContent = text;
  overlay.append(element);
}

// Largest of 1, 2, 5, 10, … that is not above a limit.
function roundBelow(limit) {
  const power = 10 ** Math.floor(Math.log10(limit) + 1e-9);
  return [5, 2, 1].map((step) => step * power).find((value) => value <= limit * (1 + 1e-9));
}

function drawOverlay(view) {
  overlay.replaceChildren();
  const bottom = canvas.clientHeight - 46;
  drawScaleBar(120, bottom);
  drawAxes(56, bottom - 34);
  drawPicked(view);
}

function drawScaleBar(left, y) {
  const pixels = pixelsPerUnit(), length = roundBelow(170 / pixels), right = left + length * pixels;
  svg("path", { d: `M${left} ${y - 5}V${y}H${right}V${y - 5}`, fill: "none", stroke: "#333", "stroke-width": 2 });
  svg("text", { x: (left + right) / 2, y: y - 8, "text-anchor": "middle", id: "scalebar" }, lengthText(length));
}

function drawAxes(x, y) {
  const { right, up, back } = eye(), height = camera.basis[2];
  const tip = (v, length) => [x + length * dot(v, right), y - length * dot(v, up)];
  const [ux, uy] = tip(height, 50);
  svg("line", { x1: x, y1: y, x2: ux, y2: uy, stroke: "#999", "stroke-dasharray": "3 3" });
  svg("text", { x: ux, y: uy - 4, "text-anchor": "middle" }, "up");
  const far = [0, 1, 2].sort((a, b) => dot(scene.axes[a], back) - dot(scene.axes[b], back));
  for (const k of far) {
    const [name, colour] = AXES[k], [tx, ty] = tip(scene.axes[k], 30), [lx, ly] = tip(scene.axes[k], 40);
    svg("line", { x1: x, y1: y, x2: tx, y2: ty, stroke: colour, "stroke-width": 2.5 });
    svg("text", { x: lx, y: ly + 4, "text-anchor": "middle", style: `fill:${colour}` }, name);
  }
}

// Clicked points, with the distance between the last two.
function drawPicked(view) {
  const spots = state.picked.map((p) => onScreen(view, transform(pose(p.scan, state.share), p.point)));
  if (spots.length > 1 && spots.every(Boolean)) {
    const [[ax, ay], [bx, by]] = spots;
    svg("line", { x1: ax, y1: ay, x2: bx, y2: by, stroke: "#333", "stroke-width": 1.5, "stroke-dasharray": "5 3" });
    svg("text", { x: (ax + bx) / 2, y: (ay + by) / 2 - 6, "text-anchor": "middle", id: "length" }, lengthText(pickedLength(), 4));
  }
  for (const spot of spots.filter(Boolean)) svg("circle", { cx: spot[0], cy: spot[1], r: 5, fill: "none", stroke: "#111", "stroke-width": 2 });
}

function pickedLength() {
  const [a, b] = state.picked.map((p) => transform(pose(p.scan, state.share), p.point));
  return Math.hypot(...add(a, b, -1)) / scene.scale;
}
