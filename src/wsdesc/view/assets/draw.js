// ---- WebGL

const canvas = document.getElementById("canvas");
const gl = canvas.getContext("webgl", { alpha: false, antialias: true, preserveDrawingBuffer: true });
if (!gl) {
  document.body.insertAdjacentHTML("beforeend", '<p id="failed">This browser does not support WebGL, which this page needs.</p>');
  throw new Error("no WebGL");
}

function program(vertex, fragment) {
  const linked = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, "precision mediump float;" + fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(linked, shader);
  }
  gl.linkProgram(linked);
  const locations = { program: linked };
  for (const [what, count, at] of [["Attrib", gl.ACTIVE_ATTRIBUTES, "Attrib"], ["Uniform", gl.ACTIVE_UNIFORMS, "Uniform"]])
    for (let k = 0; k < gl.getProgramParameter(linked, count); k++) {
      const { name } = gl[`getActive${what}`](linked, k);
      locations[name] = gl[`get${at}Location`](linked, name);
    }
  return locations;
}

// Points are discs, lit from the eye; they fade with distance. Points above the cut are not drawn.
const dots = program(`
  attribute vec3 point, normal, tint; uniform mat4 model, camera; uniform vec3 eye, up; uniform float size, range, shade, cut, flat_view, behind;
  varying vec3 lit;
  void main() {
    vec4 position = model * vec4(point, 1.0);
    gl_Position = camera * position;
    float depth = mix(gl_Position.w, range, flat_view);
    gl_PointSize = max(1.5, size / depth);
    vec4 pushed = camera * vec4(position.xyz + behind * normalize(position.xyz - eye), 1.0);
    gl_Position.z = pushed.z / pushed.w * gl_Position.w;
    if (dot(position.xyz, up) > cut) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
    vec3 rotated = normalize((model * vec4(normal, 0.0)).xyz + vec3(0, 0, 1e-6));
    float light = 1.0 - shade * 0.55 * (1.0 - abs(dot(rotated, normalize(eye - position.xyz))));
    lit = mix(tint * light, vec3(1), 0.35 * shade * clamp((depth - range) / (3.0 * range) + 0.2, 0.0, 1.0));
  }`, "varying vec3 lit; void main() { vec2 c = gl_PointCoord - 0.5; if (dot(c, c) > 0.25) discard; gl_FragColor = vec4(lit, 1); }");

// Lines are strips of triangles: the lines of WebGL are one pixel wide.
const strips = program(`
  attribute vec3 point, other, colour; attribute float side; uniform mat4 camera; uniform vec2 pixel; uniform float width; varying vec3 lit;
  void main() {
    vec4 a = camera * vec4(point, 1.0), b = camera * vec4(other, 1.0);
    vec2 along = (b.xy / b.w - a.xy / a.w) / pixel;
    vec2 across = vec2(-along.y, along.x) / max(length(along), 1e-6);
    gl_Position = a + vec4(across * side * width * pixel * a.w, 0, 0);
    lit = colour;
  }`, "uniform float alpha; varying vec3 lit; void main() { gl_FragColor = vec4(lit, alpha); }");

const cells = program(`
  attribute vec3 point, normal; attribute vec2 corner; attribute float value;
  uniform mat4 model, camera; uniform vec3 eye; varying vec4 lit; varying vec2 inside;
  void main() {
    vec4 position = model * vec4(point, 1.0);
    gl_Position = camera * position;
    float light = 0.6 + 0.4 * abs(dot((model * vec4(normal, 0.0)).xyz, normalize(eye - position.xyz)));
    lit = vec4(vec3(0.55, 0.33, 0.75) * light, 0.25 + 0.65 * value);
    inside = corner;
  }`, `
  varying vec4 lit; varying vec2 inside;
  void main() {
    vec2 rim = min(inside, 1.0 - inside);
    gl_FragColor = min(rim.x, rim.y) < 0.05 ? vec4(0.28, 0.1, 0.4, lit.a) : lit;
  }`);

function buffer(values) {
  const created = gl.createBuffer();
  gl.bindBuffer(gl.ARRAY_BUFFER, created);
  gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
  return created;
}

function attribute(location, source, count, { type = gl.FLOAT, normalized = false, stride = 0, offset = 0 } = {}) {
  gl.bindBuffer(gl.ARRAY_BUFFER, source);
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, count, type, normalized, stride, offset);
}

for (const scan of scene.scans) {
  scan.buffers = { points: buffer(scan.points), normals: buffer(scan.normals) };
  if (scan.supports) scan.buffers.keypoints = buffer(scan.supports.keypoints);
  if (scan.viewpoint) scan.buffers.viewpoint = buffer(new Float32Array(scan.viewpoint));
}
const lineBuffer = gl.createBuffer();

// Draws points; `tints` is a buffer of colours, or one colour for all of them.
function drawPoints(model, projected, points, count, { tints, normals = null, size, shade = 1, cut = Infinity, behind = 0 }) {
  gl.useProgram(dots.program);
  gl.uniformMatrix4fv(dots.model, false, model);
  gl.uniformMatrix4fv(dots.camera, false, projected);
  gl.uniform3fv(dots.eye, eye().position);
  gl.uniform3fv(dots.up, camera.basis[2]);
  gl.uniform1f(dots.cut, Math.min(cut, 1e9));
  gl.uniform1f(dots.shade, shade);
  gl.uniform1f(dots.behind, behind);
  gl.uniform1f(dots.range, camera.distance);
  gl.uniform1f(dots.flat_view, state.parallel ? 1 : 0);
  gl.uniform1f(dots.size, size * 0.95 * canvas.height * narrow());
  attribute(dots.point, points, 3);
  if (tints instanceof WebGLBuffer) attribute(dots.tint, tints, 3, { type: gl.UNSIGNED_BYTE, normalized: true });
  else { gl.disableVertexAttribArray(dots.tint); gl.vertexAttrib3f(dots.tint, ...tints.map((c) => c / 255)); }
  if (normals) attribute(dots.normal, normals, 3, { type: gl.BYTE, normalized: true });
  else { gl.disableVertexAttribArray(dots.normal); gl.vertexAttrib3f(dots.normal, 0, 0, 1); }
  gl.drawArrays(gl.POINTS, 0, count);
}

// Draws lines [from, to, colour] over everything else.
function drawLines(lines, projected, width, alpha) {
  if (!lines.length) return;
  const values = [];
  for (const [a, b, colour] of lines) {
    const c = colour.map((v) => v / 255);
    for (const [p, q, side] of [[a, b, 1], [a, b, -1], [b, a, -1], [b, a, -1], [a, b, -1], [b, a, 1]]) values.push(...p, ...q, ...c, side);
  }
  gl.useProgram(strips.program);
  gl.uniformMatrix4fv(strips.camera, false, projected);
  gl.uniform2f(strips.pixel, 1 / canvas.width, 1 / canvas.height);
  gl.uniform1f(strips.width, width * devicePixelRatio);
  gl.uniform1f(strips.alpha, alpha);
  gl.bindBuffer(gl.ARRAY_BUFFER, lineBuffer);
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(values), gl.DYNAMIC_DRAW);
  ["point", "other", "colour", "side"].forEach((name, k) =>
    attribute(strips[name], lineBuffer, name === "side" ? 1 : 3, { stride: 40, offset: 12 * k }));
  gl.drawArrays(gl.TRIANGLES, 0, 6 * lines.length);
}

// ---- the support of a keypoint: its occupied cells as cubes

function cubes(scan, k) {
  const { keypoints, axes, sides, starts, index, values, min_occupancy } = scan.supports, h = scan.supports.cells;
  const occupancy = new Uint8Array(h * h * h), side = sides[k];
  for (let j = starts[k]; j < starts[k + 1]; j++) occupancy[index[j]] = values[j];
  const at = (c) => {  // position of a grid corner, 0 … h along each axis
    const local = c.map((v) => (v / h - 0.5) * side);
    return [0, 1, 2].map((r) => keypoints[3 * k + r] + local.reduce((sum, v, d) => sum + axes[9 * k + 3 * r + d] * v, 0));
  };
  const out = [];
  for (let j = starts[k]; j < starts[k + 1]; j++) {
    const c = [Math.floor(index[j] / (h * h)), Math.floor(index[j] / h) % h, index[j] % h];
    for (let d = 0; d < 3; d++) for (const step of [-1, 1]) {
      const next = c[d] + step;
      if (next >= 0 && next < h && occupancy[index[j] + step * [h * h, h, 1][d]] >= min_occupancy) continue;  // hidden between two cells
      const [u, v] = [(d + 1) % 3, (d + 2) % 3], normal = [0, 1, 2].map((r) => axes[9 * k + 3 * r + d]);
      for (const [a, b] of [[0, 0], [1, 0], [1, 1], [0, 0], [1, 1], [0, 1]]) {
        const p = c.slice();
        p[d] += (step + 1) / 2; p[u] += a; p[v] += b;
        out.push(...at(p), ...normal, values[j] / 255, a, b);
      }
    }
  }
  const corners = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => at([(n & 1) * h, ((n >> 1) & 1) * h, (n >> 2) * h]));
  const outline = [];
  for (let n = 0; n < 8; n++) for (const bit of [1, 2, 4]) if (!(n & bit)) outline.push([corners[n], corners[n | bit]]);
  return { scan, number: k, buffer: buffer(new Float32Array(out)), count: out.length / 9, outline };
}

function drawSupport(model, projected) {
  const { buffer: source, count, outline } = state.support;
  gl.useProgram(cells.program);
  gl.uniformMatrix4fv(cells.model, false, model);
  gl.uniformMatrix4fv(cells.camera, false, projected);
  gl.uniform3fv(cells.eye, eye().position);
  attribute(cells.point, source, 3, { stride: 36 });
  attribute(cells.normal, source, 3, { stride: 36, offset: 12 });
  attribute(cells.value, source, 1, { stride: 36, offset: 24 });
  attribute(cells.corner, source, 2, { stride: 36, offset: 28 });
  gl.drawArrays(gl.TRIANGLES, 0, count);
  drawLines(outline.map(([a, b]) => [transform(model, a), transform(model, b), [90, 40, 130]]), projected, 1.5, 1);
}

// ---- draw again whenever something changes

let scheduled = false;
const redraw = () => { if (!scheduled) { scheduled = true; requestAnimationFrame(draw); } };

function draw() {
  scheduled = false;
  const width = Math.round(canvas.clientWidth * devicePixelRatio), height = Math.round(canvas.clientHeight * devicePixelRatio);
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  gl.viewport(0, 0, width, height);
  gl.clearColor(1, 1, 1, 1);
  gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  gl.enable(gl.DEPTH_TEST);
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  const view = projection(), poses = scene.scans.map((scan) => pose(scan, state.share));
  const shown = (k) => scene.scans[k].shown;
  const marks = (scan, k, points, count, size) => drawPoints(poses[k], view, points, count, { tints: [40, 40, 40], size, shade: 0 });
  scene.scans.forEach((scan, k) => {
    if (!scan.shown) return;
    drawPoints(poses[k], view, scan.buffers.points, scan.points.length / 3, {
      tints: scan.buffers.tints || scan.colour, normals: scan.buffers.normals,
      size: 1.7 * scene.spacing * state.size, shade: shading(), cut: cutHeight(), behind: isBackground(scan) ? 0.02 * scene.radius : 0 });
    if (state.keypoints && scan.supports) marks(scan, k, scan.buffers.keypoints, scan.supports.keypoints.length / 3, 0.012 * scene.radius);
  });
  if (state.support && state.support.scan.shown) drawSupport(poses[scene.scans.indexOf(state.support.scan)], view);
  gl.disable(gl.DEPTH_TEST);
  scene.scans.forEach((scan, k) => {
    if (scan.shown && state.viewpoints && scan.viewpoint) marks(scan, k, scan.buffers.viewpoint, 1, 0.03 * scene.radius);
  });
  if (scene.matches && shown(0) && shown(1)) {
    const { source, target, inlier } = scene.matches;
    for (const [kind, colour, alpha] of [[0, scene.bad, 0.6], [1, scene.good, 0.9]]) {
      const lines = [];
      for (let k = 0; k < inlier.length; k++)
        if (inlier[k] === kind) lines.push([transform(poses[0], three(source, k)), transform(poses[1], three(target, k)), colour]);
      if (state[kind ? "inliers" : "outliers"]) drawLines(lines, view, 1, alpha);
    }
  }
  const edges = scene.edges.filter((e) => shown(e.source) && shown(e.target) && state[e.accepted ? "accepted" : "rejected"]);
  drawLines(edges.map((e) => [[...poses[e.source].slice(12, 15)], [...poses[e.target].slice(12, 15)], e.colour]), view, 2.5, 1);
  drawOverlay(view);
}
