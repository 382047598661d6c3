// Elements from data. Names, messages and labels are inserted as text, never as markup.

/** An element with properties and children; `data-`, `aria-` and `role` are attributes, `on…` are listeners. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name.startsWith("--") || name === "width") node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Replaces the children of an element; the focus returns to the element with the same `data-key`. */
export function fill(node, ...children) {
  const active = document.activeElement;
  const key = node.contains(active) ? active.dataset.key : undefined;
  const top = node.scrollTop;
  node.replaceChildren(...children.flat().filter(Boolean));
  node.scrollTop = top;
  if (key !== undefined) node.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

/** The numbers of a list in the kernel's notation: "0-3,8". */
export function ids(text) {
  const found = [];
  for (const part of (text || "").split(",")) {
    if (!part) continue;
    const [first, last] = part.split("-").map(Number);
    for (let at = first; at <= (last ?? first); at += 1) found.push(at);
  }
  return found;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with about three digits. */
export function bytes(amount) {
  let size = Math.abs(amount);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = size >= 100 || unit === 0 || Number.isInteger(size) ? 0 : size >= 10 ? 1 : 2;
  return `${amount < 0 ? "-" : ""}${Number(size.toFixed(digits))} ${UNITS[unit]}`;
}

/** An amount in its unit. */
export function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes") return bytes(value);
  if (unit === "percent") return `${Number(value.toFixed(value < 10 ? 1 : 0))} %`;
  return value.toLocaleString("en");
}

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** The same in a few characters. */
export const brief = (value, unit) => (unit === "count" ? SHORT.format(value) : amount(value, unit));

/** The age, in short. */
export function age(atMs, nowMs = Date.now()) {
  const s = Math.max(0, Math.round((nowMs - atMs) / 1000));
  if (s < 120) return `${s}s`;
  if (s < 7200) return `${Math.round(s / 60)}m`;
  if (s < 172800) return `${Math.round(s / 3600)}h`;
  return `${Math.round(s / 86400)}d`;
}

/** One or many. */
export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export const fullName = (pod) => `${pod.namespace}/${pod.name}`;

// ------------------------------------------------------------ marks

const HUES = 11;
const PATTERNS = 5;
// Successive marks get distant hues: 4 of 11 steps around the circle.
const hue = (mark) => Math.round(((mark * 4) % HUES) * (360 / HUES) + 20) % 360;

/** The class and the hue of a mark: 11 hues, two shades and five patterns make 110 different marks. */
export function markProps(mark) {
  const shade = Math.floor(mark / HUES) % 2;
  const pattern = Math.floor(mark / (2 * HUES)) % PATTERNS;
  return { class: `mark shade${shade} pattern${pattern}`, "--hue": String(hue(mark)) };
}

/** A small square with the mark of a pod, for lists. */
export function swatch(pod) {
  if (pod.mark === null || pod.mark === undefined) return el("span", { class: "swatch none", "aria-hidden": "true" });
  const props = markProps(pod.mark);
  return el("span", { ...props, class: `swatch ${props.class}`, "aria-hidden": "true" }, pod.letters);
}
