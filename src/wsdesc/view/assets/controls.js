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
    camera.tilt = Math.max(-1.57, Math.min(1.57, camera.tilt + 0.007 * dy));
  }
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  if (drag && drag.distance < 4 && !drag.pan) clicked(event.offsetX * devicePixelRatio, event.offsetY * devicePixelRatio);
  drag = null;
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  camera.distance = Math.max(0.02, Math.min(30, camera.distance * Math.exp(0.0012 * event.deltaY)));
  redraw();
}, { passive: false });
addEventListener("resize", redraw);

const part = (id) => document.getElementById(id);

function element(name, properties, parent) {
  const created = Object.assign(document.createElement(name), properties);
  parent.append(created);
  return created;
}

const section = (parent, text) => element("h2", { textContent: text }, parent);

function control(parent, id, before, after, properties, changed, colour) {
  const label = element("label", {}, parent), input = document.createElement("input");
  Object.assign(input, { id, ...properties });
  input.addEventListener("input", () => { changed(input); redraw(); });
  const mark = document.createElement("i");
  if (colour) mark.style.background = `rgb(${colour})`;
  label.append(before, input, ...(colour ? [mark] : []), after);
  return input;
}

const slider = (parent, id, before, after, value, range, changed) =>
  control(parent, id, before, after, { type: "range", ...range, step: "any", value }, (input) => changed(Number(input.value)));
const box = (parent, id, text, checked, changed, colour) =>
  control(parent, id, "", text, { type: "checkbox", checked }, (input) => changed(input.checked), colour);
const button = (parent, id, textContent, pressed) =>
  element("button", { id, textContent, type: "button" }, parent).addEventListener("click", () => { pressed(); redraw(); });

function chooser(parent, id, before, options, changed) {
  const label = element("label", {}, parent), select = document.createElement("select");
  select.id = id;
  for (const [value, text] of options) select.append(new Option(text, value));
  select.addEventListener("change", () => { changed(select.value); redraw(); });
  label.append(before, select);
  return select;
}

// ---- what is known about the result

part("verdict").textContent = scene.verdict;
part("verdict").style.background = scene.success === null ? "#777" : `rgb(${scene.success ? scene.good : scene.bad})`;
for (const fact of scene.facts) element("p", { textContent: fact }, part("facts"));
for (const warning of scene.warnings) element("p", { textContent: warning }, part("warnings"));

scene.scans.forEach((scan, number) => {
  if (!scan.choices.length) return;
  if (scan.choices.length > 1) section(part("poses"), `${scan.choices.length} plausible poses: choose one`);
  else return;
  const rows = scan.choices.map((choice, k) => {
    const row = element("button", { id: `pose${number}-${k}`, type: "button", className: "pose" }, part("poses"));
    row.append(`${k + 1}: `);
    if (choice.probability !== null) {
      element("meter", { max: 1, value: choice.probability }, row);
      row.append(` probability ${choice.probability.toFixed(2)}`);
    }
    element("small", { textContent: choice.name }, row);
    row.addEventListener("click", () => choose(k));
    return row;
  });
  const choose = (k) => {
    Object.assign(scan, { end: scan.choices[k].pose, choice: k });
    rows.forEach((row, j) => row.classList.toggle("chosen", j === k));
    recolour();
  };
  rows[0].classList.add("chosen");
});

// ---- the view

const controls = part("controls");
// The camera steps back while scans move to their input poses, so that they stay in sight.
const reach = Math.max(...scene.scans.map((s) => Math.hypot(...add(s.start.position, s.end.position, -1)))) / (2 * scene.radius);
const step = (share) => 1 + reach * (1 - share);
if (scene.moves) slider(controls, "share", "input", "result", 1, { min: 0, max: 1 }, (v) => {
  camera.distance *= step(v) / step(state.share);
  state.share = v;
});
const views = element("div", { id: "views" }, controls);
const look = (turn, tilt) => () => Object.assign(camera, { turn, tilt });
button(views, "reset", "reset view", () => Object.assign(camera, HOME, { target: [0, 0, 0], distance: HOME.distance * step(state.share) }));
button(views, "top", "top", look(-Math.PI / 2, 1.57));
button(views, "front", "front", look(-Math.PI / 2, 0));
button(views, "side", "side", look(0, 0));
const ups = ["z", "-z", "y", "-y", "x", "-x"].map((name) => [name, name.replace("-", "−")]);
chooser(controls, "up", "up", ups, (name) => { setUp(name); cutRange = null; recolour(); }).value = scene.up;
box(controls, "parallel", "parallel projection", false, (on) => { state.parallel = on; });
slider(controls, "size", "point size", "", 1, { min: 0.2, max: 4 }, (v) => { state.size = v; });
slider(controls, "cut", "cut above", "", 1, { min: 0, max: 1 }, (v) => { state.cut = v; });

// ---- colours

const kinds = [...new Set(scene.scans.map((scan) => scan.own_kind).filter(Boolean))].join(" and ");
const modes = [
  ["scans", scene.scans.length > 1 ? "one colour per scan" : "one colour"],
  ...(kinds ? [["own", `${kinds} of the file${scene.scans.length > 1 ? "s" : ""}`]] : []),
  ...(scene.scans.some((scan) => scan.distances.length) ? [["distance", "distance between the scans"]] : []),
  ["height", "height"],
];
const setMode = (mode) => {
  state.mode = mode;
  part("range").parentElement.hidden = mode !== "distance";
  recolour();
};
section(part("colours"), "colours");
const modeChooser = chooser(part("colours"), "mode", "", modes, setMode);
slider(part("colours"), "range", "scale to", "", 0.5, { min: 0, max: 1 }, (v) => {
  const scan = scene.scans.find((s) => s.distances.length), most = distancesOf(scan).step * (NO_DISTANCE - 1);
  state.range = most * 10 ** (3 * (v - 1));
  recolour();
}).parentElement.hidden = true;

// ---- scans and lines

if (scene.scans.length > 1) section(part("scans"), `${scene.scans.length} scans`);
if (scene.scans.length > 3)
  box(part("scans"), "all", "all scans", true, (on) => scene.scans.forEach((_, k) => { if (part(`scan${k}`).checked !== on) part(`scan${k}`).click(); }));
scene.scans.forEach((scan, k) => box(part("scans"), `scan${k}`, scan.name, true, (on) => {
  scan.shown = on;
  if (state.mode === "distance" && measured().length) recolour();
}, scan.colour));
element("p", { id: "points", textContent: scene.point_count }, part("scans"));

const lines = part("lines"), toggle = (id, text, on, colour) => { state[id] = on; box(lines, id, text, on, (v) => { state[id] = v; }, colour); };
if (scene.matches) {
  const drawn = scene.matches.inlier.reduce((sum, v) => sum + v, 0), [inliers, outliers] = scene.match_counts;
  const count = (shown, all, word) => `${all} ${word}` + (shown < all ? `, ${shown} of them drawn` : "");
  toggle("inliers", count(drawn, inliers, "inliers"), true, scene.good);
  toggle("outliers", count(scene.matches.inlier.length - drawn, outliers, "outliers"), false, scene.bad);
}
for (const [id, accepted] of [["accepted", true], ["rejected", false]]) {
  const count = scene.edges.filter((e) => e.accepted === accepted).length;
  if (count) toggle(id, `${count} ${id} edge${count > 1 ? "s" : ""}, red to green: confidence`, accepted);
}
if (scene.scans.some((scan) => scan.viewpoint)) toggle("viewpoints", "positions of the scanner", true, [40, 40, 40]);
if (scene.scans.some((scan) => scan.supports)) {
  toggle("keypoints", "keypoints", false, [40, 40, 40]);
  toggle("supports", "support of a clicked keypoint", false, [140, 84, 191]);
}

const alone = scene.scans.length === 1;
modeChooser.value = alone ? (kinds ? "own" : "height") : "scans";
setMode(modeChooser.value);
