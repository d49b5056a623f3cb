"use strict";
// Draws the scene of this page. It uses no library and loads nothing, so that the file works offline.

// ---- the scene: arrays are base64, poses are a quaternion w x y z and a position

const scene = JSON.parse(document.getElementById("scene").textContent);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const decode = { u8: Uint8Array, i8: Int8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };
const array = (packed) => new decode[packed.type](bytes(packed.data).buffer);

for (const scan of scene.scans) {
  scan.shown = true;
  scan.points = Float32Array.from(array(scan.points), (v, k) => scan.low[k % 3] + scan.step * v);
  scan.normals = array(scan.normals);
  if (scan.supports) for (const key in scan.supports) if (scan.supports[key].type) scan.supports[key] = array(scan.supports[key]);
}
if (scene.matches) for (const key of ["source", "target", "inlier"]) scene.matches[key] = array(scene.matches[key]);

const state = { share: 1, size: 1, inliers: true, outliers: true, accepted: true, rejected: false, keypoints: false, support: null };
const camera = { turn: -2.2, tilt: 0.55, distance: 2 * scene.radius, target: [0, 0, 0] };

// ---- vectors and matrices (column-major, as in WebGL)

const add = (a, b, s = 1) => [a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2]];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const three = (a, k) => [a[3 * k], a[3 * k + 1], a[3 * k + 2]];
const product = (a, b) => Float32Array.from({ length: 16 }, (_, k) =>
  [0, 1, 2, 3].reduce((sum, j) => sum + a[(k % 4) + 4 * j] * b[j + 4 * (k >> 2)], 0));
const transform = (m, p) => [0, 1, 2].map((r) => m[r] * p[0] + m[r + 4] * p[1] + m[r + 8] * p[2] + m[r + 12]);

// Interpolates rigidly between the start and the end pose of a scan.
function pose(scan, share) {
  const a = scan.start.wxyz, sign = Math.sign(a.reduce((s, v, k) => s + v * scan.end.wxyz[k], 0)) || 1;
  const b = scan.end.wxyz.map((v) => sign * v);
  const angle = Math.acos(Math.min(1, a.reduce((s, v, k) => s + v * b[k], 0)));
  const [u, v] = angle < 1e-6 ? [1 - share, share] : [Math.sin((1 - share) * angle), Math.sin(share * angle)];
  let q = a.map((x, k) => u * x + v * b[k]);
  const n = Math.hypot(...q), [w, x, y, z] = q.map((c) => c / n);
  const p = scan.start.position.map((c, k) => (1 - share) * c + share * scan.end.position[k]);
  return Float32Array.of(
    1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y), 0,
    2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x), 0,
    2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y), 0, ...p, 1);
}

function eye() {
  const { turn, tilt, distance, target } = camera;
  const back = [Math.cos(tilt) * Math.cos(turn), Math.cos(tilt) * Math.sin(turn), Math.sin(tilt)];
  const right = [-Math.sin(turn), Math.cos(turn), 0];
  return { back, right, up: cross(back, right), position: add(target, back, distance) };
}

function projection() {
  const { back, right, up, position } = eye();
  const near = camera.distance / 50, far = camera.distance + 20 * scene.radius;
  const f = 1.9, aspect = canvas.width / canvas.height, narrow = Math.min(1, aspect);
  const aside = canvas.clientWidth > 700 ? 270 / canvas.clientWidth : 0;  // the panel covers the right side
  const look = [0, 1, 2].flatMap((k) => [right[k], up[k], back[k], 0]);
  const lens = [f * narrow / aspect, 0, 0, 0, 0, f * narrow, 0, 0, aside, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0];
  return product(lens, [...look, -dot(right, position), -dot(up, position), -dot(back, position), 1]);
}
