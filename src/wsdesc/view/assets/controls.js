// ---- pick: the first point near a click, and the nearest keypoint of its scan

function pick(x, y) {
  const view = projection(), radius = 7 * devicePixelRatio;
  let best = null;
  for (const scan of scene.scans.filter((s) => s.shown && s.supports)) {
    const m = product(view, pose(scan, state.share)), p = scan.points;
    for (let k = 0; k < p.length; k += 3) {
      const w = m[3] * p[k] + m[7] * p[k + 1] + m[11] * p[k + 2] + m[15];
      if (w <= 0 || (best && w >= best.w)) continue;
      const dx = ((m[0] * p[k] + m[4] * p[k + 1] + m[8] * p[k + 2] + m[12]) / w + 1) * canvas.width / 2 - x;
      const dy = (1 - (m[1] * p[k] + m[5] * p[k + 1] + m[9] * p[k + 2] + m[13]) / w) * canvas.height / 2 - y;
      if (dx * dx + dy * dy < radius * radius) best = { w, scan, point: [p[k], p[k + 1], p[k + 2]] };
    }
  }
  if (!best) return null;
  const keys = best.scan.supports.keypoints;
  let nearest = 0, least = Infinity;
  for (let k = 0; k < keys.length / 3; k++) {
    const distance = Math.hypot(...add(three(keys, k), best.point, -1));
    if (distance < least) [nearest, least] = [k, distance];
  }
  return cubes(best.scan, nearest);
}

// ---- the mouse, and the panel

let drag = null;
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  drag = { x: event.clientX, y: event.clientY, distance: 0, pan: event.shiftKey || event.button > 0 };
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
  Object.assign(drag, { x: event.clientX, y: event.clientY, distance: drag.distance + Math.hypot(dx, dy) });
  if (drag.pan) {
    const { right, up } = eye(), step = camera.distance / canvas.clientHeight;
    camera.target = add(add(camera.target, right, -dx * step), up, dy * step);
  } else {
    camera.turn -= 0.007 * dx;
    camera.tilt = Math.max(-1.55, Math.min(1.55, camera.tilt + 0.007 * dy));
  }
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && drag.distance < 4 && !drag.pan) {
    if (state.support) gl.deleteBuffer(state.support.buffer);
    state.support = pick(event.offsetX * devicePixelRatio, event.offsetY * devicePixelRatio);
    redraw();
  }
  drag = null;
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  camera.distance = Math.max(0.02, Math.min(30, camera.distance * Math.exp(0.0012 * event.deltaY)));
  redraw();
}, { passive: false });
addEventListener("resize", redraw);

const controls = document.getElementById("controls");

function control(id, before, after, properties, changed, colour) {
  const label = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, { id, ...properties });
  input.addEventListener("input", () => { changed(input); redraw(); });
  const mark = document.createElement("i");
  if (colour) mark.style.background = `rgb(${colour})`;
  label.append(before, input, ...(colour ? [mark] : []), after);
  controls.append(label);
}

const slider = (id, before, after, value, range, changed) =>
  control(id, before, after, { type: "range", ...range, step: "any", value }, (input) => changed(Number(input.value)));
const box = (id, text, checked, changed, colour) =>
  control(id, "", text, { type: "checkbox", checked }, (input) => changed(input.checked), colour);

function chooser(id, before, names, changed) {
  const label = document.createElement("label"), select = document.createElement("select");
  select.id = id;
  names.forEach((name, k) => select.append(new Option(name, k)));
  select.addEventListener("change", () => { changed(select.selectedIndex); redraw(); });
  label.append(before, select);
  controls.append(label);
}

for (const fact of scene.facts) {
  const line = document.createElement("p");
  line.textContent = fact;
  document.getElementById("facts").append(line);
}
scene.scans.forEach((scan, k) => {
  if (!scan.choices.length) return;
  chooser(`pose${k}`, "pose", scan.choices.map((c) => c.name), (n) => { scan.end = scan.choices[n].pose; });
});
if (scene.moves) slider("share", "input", "result", 1, { min: 0, max: 1 }, (v) => { state.share = v; });
slider("size", "point size", "", 1, { min: 0.2, max: 4 }, (v) => { state.size = v; });
scene.scans.forEach((scan, k) => box(`scan${k}`, scan.name, true, (on) => { scan.shown = on; }, scan.colour));
if (scene.matches) {
  const drawn = scene.matches.inlier.reduce((sum, v) => sum + v, 0), [inliers, outliers] = scene.match_counts;
  box("inliers", `inliers: ${drawn} of ${inliers} shown`, true, (on) => { state.inliers = on; }, scene.good);
  box("outliers", `outliers: ${scene.matches.inlier.length - drawn} of ${outliers} shown`, true, (on) => { state.outliers = on; }, scene.bad);
}
for (const [id, accepted] of [["accepted", true], ["rejected", false]]) {
  const count = scene.edges.filter((e) => e.accepted === accepted).length;
  if (count) box(id, `${count} ${id} edges, red to green: confidence`, accepted, (on) => { state[id] = on; });
}
if (scene.scans.some((scan) => scan.supports)) {
  box("keypoints", "keypoints", false, (on) => { state.keypoints = on; }, [40, 40, 40]);
  document.getElementById("click").textContent = " · click: support of the nearest keypoint";
}
redraw();
