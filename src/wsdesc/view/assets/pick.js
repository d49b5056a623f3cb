// ---- pick: the first point near a click, its coordinates, and the support of the nearest keypoint

function pick(x, y) {
  const view = projection(), radius = 7 * devicePixelRatio, cut = cutHeight(), up = camera.basis[2];
  let best = null;
  for (const scan of scene.scans.filter((s) => s.shown)) {
    const model = pose(scan, state.share), m = product(view, model), p = scan.points;
    for (let k = 0; k < p.length; k += 3) {
      const w = m[3] * p[k] + m[7] * p[k + 1] + m[11] * p[k + 2] + m[15];
      const z = (m[2] * p[k] + m[6] * p[k + 1] + m[10] * p[k + 2] + m[14]) / w;
      if (w <= 0 || (best && z >= best.z)) continue;
      const dx = ((m[0] * p[k] + m[4] * p[k + 1] + m[8] * p[k + 2] + m[12]) / w + 1) * canvas.width / 2 - x;
      const dy = (1 - (m[1] * p[k] + m[5] * p[k + 1] + m[9] * p[k + 2] + m[13]) / w) * canvas.height / 2 - y;
      if (dx * dx + dy * dy > radius * radius || dot(transform(model, [p[k], p[k + 1], p[k + 2]]), up) > cut) continue;
      best = { z, scan, index: k / 3, point: [p[k], p[k + 1], p[k + 2]] };
    }
  }
  return best;
}

function nearestSupport({ scan, point }) {
  if (!scan.supports) return null;
  const keys = scan.supports.keypoints;
  let nearest = 0, least = Infinity;
  for (let k = 0; k < keys.length / 3; k++) {
    const distance = Math.hypot(...add(three(keys, k), point, -1));
    if (distance < least) [nearest, least] = [k, distance];
  }
  return cubes(scan, nearest);
}

function pickedText({ scan, index, point }) {
  const digits = Math.max(0, Math.min(6, Math.ceil(Math.log10(2000 * scene.scale / scene.radius))));
  const place = inFile(transform(pose(scan, state.share), point)).map((v, k) => `${"xyz"[k]} ${v.toFixed(digits)}`).join(", ");
  const value = scan.distances.length ? distancesOf(scan).values[index] : NO_DISTANCE;
  return `${scan.name}: ${place}` + (value === NO_DISTANCE ? "" : ` · distance ${lengthText(value * distancesOf(scan).step)}`);
}

function clicked(x, y) {
  const found = pick(x, y), hint = document.getElementById("hint");
  if (state.support) gl.deleteBuffer(state.support.buffer);
  state.support = found && state.supports ? nearestSupport(found) : null;
  state.picked = found ? [...state.picked, found].slice(-2) : [];
  hint.textContent = found ? pickedText(found) + " · click beside the scans: forget points" : HINT;
  redraw();
}
const HINT = document.getElementById("hint").textContent;
