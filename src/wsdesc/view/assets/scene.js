"use strict";
// Draws the scene of this page. It uses no library and loads nothing, so that the file works offline.

// ---- the scene: arrays are base64, poses are a quaternion w x y z, a position and a scale

const scene = JSON.parse(document.getElementById("scene").textContent);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const decode = { u8: Uint8Array, i8: Int8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };
const array = (packed) => new decode[packed.type](bytes(packed.data).buffer);

for (const scan of scene.scans) {
  Object.assign(scan, { shown: true, choice: 0 });
  scan.points = Float32Array.from(array(scan.points), (v, k) => scan.low[k % 3] + scan.step * v);
  scan.normals = array(scan.normals);
  if (scan.own) scan.own = array(scan.own);
  for (const distances of scan.distances) distances.values = array(distances.values);
  if (scan.supports) for (const key in scan.supports) if (scan.supports[key].type) scan.supports[key] = array(scan.supports[key]);
}
if (scene.matches) for (const key of ["source", "target", "inlier"]) scene.matches[key] = array(scene.matches[key]);

const state = {
  share: 1, size: 1, cut: 1, mode: "scans", range: 0, parallel: false,
  inliers: false, outliers: false, accepted: false, rejected: false, keypoints: false, supports: false, viewpoints: false,
  support: null, picked: [],
};
// Scans of cameras are seen from near the place of the camera, others from above.
const HOME = { ...(scene.up.endsWith("y") ? { turn: -1.9, tilt: 0.3 } : { turn: -2.2, tilt: 0.55 }), distance: 1.75 * scene.radius };
const camera = { ...HOME, target: [0, 0, 0], basis: [[1, 0, 0], [0, 1, 0], [0, 0, 1]] };  // the third direction is up

// ---- vectors and matrices (column-major, as in WebGL)

const add = (a, b, s = 1) => [a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2]];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const unit = (a) => a.map((v) => v / (Math.hypot(...a) || 1));
const three = (a, k) => [a[3 * k], a[3 * k + 1], a[3 * k + 2]];
const product = (a, b) => Float32Array.from({ length: 16 }, (_, k) =>
  [0, 1, 2, 3].reduce((sum, j) => sum + a[(k % 4) + 4 * j] * b[j + 4 * (k >> 2)], 0));
const transform = (m, p) => [0, 1, 2].map((r) => m[r] * p[0] + m[r + 4] * p[1] + m[r + 8] * p[2] + m[r + 12]);

// Interpolates between the start and the end pose of a scan.
function pose(scan, share) {
  const a = scan.start.wxyz, sign = Math.sign(a.reduce((s, v, k) => s + v * scan.end.wxyz[k], 0)) || 1;
  const b = scan.end.wxyz.map((v) => sign * v);
  const angle = Math.acos(Math.min(1, a.reduce((s, v, k) => s + v * b[k], 0)));
  const [u, v] = angle < 1e-6 ? [1 - share, share] : [Math.sin((1 - share) * angle), Math.sin(share * angle)];
  const q = a.map((x, k) => u * x + v * b[k]);
  const n = Math.hypot(...q), [w, x, y, z] = q.map((c) => c / n);
  const p = scan.start.position.map((c, k) => (1 - share) * c + share * scan.end.position[k]);
  const s = scan.start.scale ** (1 - share) * scan.end.scale ** share;
  const rotation = [
    1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y), 0,
    2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x), 0,
    2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y), 0];
  return Float32Array.of(...rotation.map((c) => s * c), ...p, 1);
}

// ---- the camera

const FOCAL = 1.9;

function eye() {
  const { turn, tilt, distance, target, basis: [a, b, u] } = camera;
  const flat = add(a.map((v) => v * Math.cos(turn)), b, Math.sin(turn));
  const back = add(flat.map((v) => v * Math.cos(tilt)), u, Math.sin(tilt));
  const right = add(a.map((v) => -v * Math.sin(turn)), b, Math.cos(turn));
  return { back, right, up: cross(back, right), position: add(target, back, distance) };
}

const narrow = () => Math.min(1, canvas.width / canvas.height);
const panelShare = () => canvas.clientWidth > 700 ? 280 / canvas.clientWidth : 0;  // the panel covers the right side

function projection() {
  const { back, right, up, position } = eye();
  const d = camera.distance, near = d / 50, far = d + 20 * scene.radius, aspect = canvas.width / canvas.height;
  const y = FOCAL * narrow(), x = y / aspect, aside = panelShare(), depth = 40 * scene.radius;
  const lens = state.parallel
    ? [x / d, 0, 0, 0, 0, y / d, 0, 0, 0, 0, -1 / depth, 0, -aside, 0, -d / depth, 1]
    : [x, 0, 0, 0, 0, y, 0, 0, aside, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0];
  const look = [0, 1, 2].flatMap((k) => [right[k], up[k], back[k], 0]);
  return product(lens, [...look, -dot(right, position), -dot(up, position), -dot(back, position), 1]);
}

// Position of a point of the scene on the screen, in CSS pixels.
function onScreen(view, p) {
  const w = view[3] * p[0] + view[7] * p[1] + view[11] * p[2] + view[15];
  const [x, y] = transform(view, p);
  return w <= 0 ? null : [(x / w + 1) / 2 * canvas.clientWidth, (1 - y / w) / 2 * canvas.clientHeight];
}

// Pixels of one unit of the files, at the distance of the point that the camera turns about.
const pixelsPerUnit = () => FOCAL * narrow() * canvas.clientHeight / 2 / camera.distance * scene.scale;

// Coordinates in the files (of the target, or of the common frame) of a point of the scene.
const inFile = (p) => scene.axes.map((row, k) => dot(row, p) / scene.scale + scene.centre[k]);

// A length in the unit of the files, as text.
function lengthText(value, digits = 3) {
  const rounded = (v) => v > 0 && v < 1e-3 ? v.toExponential(digits - 1) : `${Number(v.toPrecision(digits))}`;
  if (scene.unit !== "m") return `${rounded(value)} ${scene.unit || (rounded(value) === "1" ? "unit" : "units")}`;
  if (value >= 1 || value === 0) return `${rounded(value)} m`;
  return value >= 0.01 ? `${rounded(100 * value)} cm` : `${rounded(1000 * value)} mm`;
}

// Sets the direction that points up: "x", "-x", "y", …
function setUp(name) {
  const sign = name.startsWith("-") ? -1 : 1, up = scene.axes["xyz".indexOf(name.slice(-1))].map((v) => sign * v);
  const wanted = name === scene.up ? [1, 0, 0] : scene.axes[(("xyz".indexOf(name.slice(-1))) + 1) % 3];
  const first = unit(add(wanted, up, -dot(wanted, up)));
  camera.basis = [first, cross(up, first), up];
}
