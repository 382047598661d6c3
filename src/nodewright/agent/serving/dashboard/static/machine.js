// The machine: NUMA nodes, sockets, caches, cores, threads, memory, devices, and the pods that hold them.
import { bytes, byId, count, el, fill, fullName, ids, markProps, swatch } from "./dom.js";
import { openCPU, openPod } from "./panel.js";

const state = { cells: [], at: null, owners: new Map(), view: null, asTable: false, built: "" };

/** The owner of each CPU: { kind, pod, container }. */
function ownersOf({ machine, holdings, pods }) {
  const byKey = new Map(pods.map((pod) => [pod.key, pod]));
  const owners = new Map();
  for (const numa of machine.numa) for (const cpu of ids(numa.cpus)) owners.set(cpu, { kind: "shared" });
  for (const cpu of ids(holdings.reservedCPUs)) owners.set(cpu, { kind: "reserved" });
  for (const one of holdings.cpus) {
    const pod = byKey.get(one.pod);
    for (const cpu of ids(one.cpus)) owners.set(cpu, { kind: "own", pod, container: one.container });
  }
  return owners;
}

function ownerText(owner) {
  if (owner.kind === "reserved") return "reserved for the system";
  if (owner.kind === "shared") return state.view.holdings.sharedCPUs === null ? "shared by all" : "shared by all without exclusive CPUs";
  const name = owner.pod ? fullName(owner.pod) : "a removed pod";
  return owner.container ? `${name}, container ${owner.container}` : name;
}

export function drawMachine(view) {
  if (!view.machine || !view.holdings) return;
  state.view = view;
  state.owners = ownersOf(view);
  const { machine } = view;
  const shape = JSON.stringify(machine);
  if (shape !== state.built) {
    state.built = shape;
    build(machine);
  }
  paint();
  drawMemory(view);
  drawDevices(view);
  drawLegend(view);
  const numa = machine.numa.length;
  const free = [...state.owners.values()].filter((one) => one.kind === "shared").length;
  const facts = [count(machine.cpus, "CPU"), count(numa, "NUMA node"), bytes(machine.memoryBytes)];
  if (view.holdings.sharedCPUs !== null) facts.push(`${count(free, "CPU")} shared`);
  byId("machine-facts").textContent = facts.join(" · ");
  if (state.asTable) drawTable(view);
}

// ------------------------------------------------------------ drawing

/** Numbers as the kernel lists them: "0-3,8". */
function spans(numbers) {
  const parts = [];
  for (const one of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === one - 1) last[1] = one;
    else parts.push([one, one]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

const sizeOf = (cpus) => (cpus <= 32 ? "xl" : cpus <= 96 ? "l" : cpus <= 192 ? "m" : cpus <= 320 ? "s" : "xs");

function build(machine) {
  const drawing = byId("drawing");
  drawing.className = `drawing ${sizeOf(machine.cpus)}`;
  state.cells = [];
  const sockets = new Map();
  const hollow = [];
  for (const numa of machine.numa) {
    if (!numa.groups.length) {
      hollow.push(numa);
      continue;
    }
    const name = numa.sockets.length === 1 ? `Socket ${numa.sockets[0]}` : `Sockets ${numa.sockets.join(", ")}`;
    if (!sockets.has(name)) sockets.set(name, []);
    sockets.get(name).push(numaBox(numa, machine));
  }
  const boxes = [...sockets].map(([name, inside]) =>
    el("div", { class: "socket", role: "group", "aria-label": name }, el("h3", {}, name), el("div", { class: "numas" }, inside)),
  );
  if (hollow.length) {
    const places = new Set(state.view.holdings.devices.map((one) => one.numa[0]));
    const isEmpty = (numa) => !numa.memoryBytes && !places.has(numa.id);
    const inside = hollow.filter((numa) => !isEmpty(numa)).map((numa) => numaBox(numa, machine));
    const empty = hollow.filter(isEmpty);
    if (empty.length) inside.push(el("p", { class: "soft nothing" }, `empty: ${spans(empty.map((numa) => numa.id))}`));
    boxes.push(
      el("div", { class: "socket", role: "group", "aria-label": "NUMA nodes without CPUs" }, el("h3", {}, "NUMA nodes without CPUs"), el("div", { class: "numas hollow" }, inside)),
    );
  }
  boxes.push(el("div", { id: "elsewhere", class: "devices" }));
  drawing.replaceChildren(...boxes);
  const first = state.cells.find((cell) => Number(cell.dataset.cpu) === state.at) ?? state.cells[0];
  if (first) first.tabIndex = 0;
}

function numaBox(numa, machine) {
  const caches = numa.groups.filter((group) => group.cache !== null).length;
  const areGroups = numa.groups.length > 1 || numa.sockets.length > 1;
  const threads = ids(numa.cpus).length;
  const label = `NUMA node ${numa.id}, ${threads ? `CPUs ${numa.cpus}, ` : ""}${bytes(numa.memoryBytes)}`;
  const across = groupsAcross(numa.groups, machine.numa.length > 4 ? 1.7 : 7);
  const groups = numa.groups.map((group) => groupBox(group, numa, areGroups, caches));
  return el(
    "div",
    { class: "numa", role: "group", "aria-label": label, "data-numa": numa.id },
    el("div", { class: "title" }, el("b", {}, `NUMA ${numa.id}`), threads ? el("span", { class: "soft cpus" }, numa.cpus) : null),
    groups.length ? el("div", { class: "groups", "--across": String(across), "--cores": String(Math.max(...numa.groups.map((one) => coresAcross(one.cores.length)))) }, groups) : null,
    el("div", { class: "memory", "data-memory": numa.id }),
    el("div", { class: "devices", "data-devices": numa.id }),
  );
}

/** Rows of at most 16 cores, of equal length. */
const coresAcross = (cores) => Math.ceil(cores / Math.ceil(cores / 16));

/** The number of groups per row: full rows, in about the given ratio of width to height. */
function groupsAcross(groups, wanted) {
  const [first] = groups;
  if (!first) return 1;
  const width = coresAcross(first.cores.length);
  const height = Math.ceil(first.cores.length / width) * first.cores[0].cpus.length;
  let [best, least] = [1, Infinity];
  for (let across = 1; across <= groups.length; across += 1) {
    const rows = Math.ceil(groups.length / across);
    const cost = Math.abs(Math.log((across * width) / (rows * height) / wanted)) + (groups.length % across ? 1 : 0);
    if (cost < least) [best, least] = [across, cost];
  }
  return best;
}

function groupBox(group, numa, areGroups, caches) {
  const cores = group.cores.map((core) =>
    el("div", { class: "core" }, core.cpus.map((cpu) => cell(cpu, core, group, numa))),
  );
  const inside = el("div", { class: "cores", "--across": String(coresAcross(cores.length)) }, cores);
  if (!areGroups) return inside;
  const words = [];
  if (numa.sockets.length > 1) words.push(`socket ${group.socket}`);
  if (group.cache !== null && caches > 1) words.push(`L3 ${group.cache}`);
  return el("div", { class: "group", role: "group", "aria-label": words.join(", "), title: group.cache === null ? "" : `L3 ${group.cache}, ${bytes(group.cacheBytes)}` }, inside);
}

function cell(cpu, core, group, numa) {
  const button = el("button", {
    type: "button",
    class: "cell",
    tabindex: "-1",
    "data-cpu": cpu,
    "data-place": `CPU ${cpu} · core ${core.id} · ${group.cache === null ? "" : `L3 ${group.cache} · `}NUMA ${numa.id} · socket ${group.socket}`,
    "data-spoken": `CPU ${cpu}, core ${core.id}, NUMA node ${numa.id}`,
  });
  button.append(el("span", { class: "letters" }), el("span", { class: "id", "aria-hidden": "true" }, String(cpu)));
  state.cells.push(button);
  return button;
}

/** Updates colour, letters and label of every cell. */
function paint() {
  for (const button of state.cells) {
    const owner = state.owners.get(Number(button.dataset.cpu));
    const mark = owner.kind === "own" && owner.pod ? owner.pod.mark : null;
    const props = mark === null || mark === undefined ? { class: "" } : markProps(mark);
    const key = owner.pod?.key ?? "";
    const face = `${owner.kind}|${mark}|${key}|${owner.container}`;
    if (button.dataset.face === face) continue;
    button.dataset.face = face;
    button.className = `cell ${owner.kind} ${props.class}`;
    if (props["--hue"]) button.style.setProperty("--hue", props["--hue"]);
    else button.style.removeProperty("--hue");
    button.dataset.pod = key;
    button.firstChild.textContent = owner.kind === "own" ? (owner.pod?.letters ?? "?") : owner.kind === "reserved" ? "R" : "";
    button.setAttribute("aria-label", `${button.dataset.spoken}: ${ownerText(owner)}`);
  }
}

function segment(pod, share, title) {
  const props = pod && pod.mark !== null ? markProps(pod.mark) : { class: "" };
  return el("span", { ...props, class: `segment ${props.class}`, width: `${(100 * share).toFixed(2)}%`, title, "data-pod": pod?.key }, share > 0.06 ? (pod?.letters ?? "") : "");
}

function drawMemory({ machine, holdings, pods }) {
  const byKey = new Map(pods.map((pod) => [pod.key, pod]));
  const books = new Map(holdings.memory.map((one) => [one.numa, one]));
  for (const numa of machine.numa) {
    const place = document.querySelector(`[data-memory="${numa.id}"]`);
    if (!place) continue;
    const book = books.get(numa.id);
    const lines = [];
    if (!book) {
      lines.push(el("p", { class: "soft" }, bytes(numa.memoryBytes)));
      for (const page of numa.hugePages) if (page.count) lines.push(el("p", { class: "soft" }, `${page.count} × ${bytes(page.bytes)} huge pages`));
    }
    for (const kind of book?.kinds ?? []) {
      if (!kind.total) continue;
      const held = holdings.blocks.filter((block) => block.type === kind.type && block.numa.includes(numa.id));
      const segments = held.map((block) => {
        const pod = byKey.get(block.pod);
        // A block of several NUMA nodes is drawn on each by its share of them.
        const text = `${pod ? fullName(pod) : "?"}${block.container ? ` (${block.container})` : ""}: ${bytes(block.bytes)}${block.numa.length > 1 ? ` on ${block.numa.join(", ")}` : ""}`;
        return segment(pod, block.bytes / block.numa.length / kind.total, text);
      });
      const kept = kind.total - kind.allocatable;
      if (kept > 0) segments.unshift(el("span", { class: "segment reserved", width: `${((100 * kept) / kind.total).toFixed(2)}%`, title: `reserved for the system: ${bytes(kept)}` }));
      const name = kind.type === "memory" ? "" : `${kind.type.replace("hugepages-", "")} pages: `;
      const together = book.with.length && kind.type === "memory" ? `, with NUMA ${book.with.join(", ")}` : "";
      const label = `${name}${bytes(kind.free)} of ${bytes(kind.total)} free${together}`;
      lines.push(el("div", { class: "membar", role: "img", "aria-label": `NUMA node ${numa.id}: ${label}` }, segments), el("p", { class: "soft" }, label));
    }
    place.replaceChildren(...lines);
  }
}

function drawDevices({ machine, holdings, pods }) {
  const byKey = new Map(pods.map((pod) => [pod.key, pod]));
  const places = new Map(machine.numa.map((numa) => [numa.id, []]));
  const elsewhere = [];
  for (const device of holdings.devices) {
    const pod = byKey.get(device.pod);
    const props = pod && pod.mark !== null ? markProps(pod.mark) : { class: device.healthy ? "free" : "sick" };
    const owner = pod ? fullName(pod) : device.healthy ? "free" : "not healthy";
    const where = device.numa.length > 1 ? `, NUMA ${device.numa.join(", ")}` : "";
    const label = `${device.id} (${device.resource}${where}): ${owner}`;
    const chip = el(
      pod ? "button" : "span",
      { ...props, type: pod ? "button" : null, class: `device ${props.class}`, title: label, "aria-label": label, "data-pod": pod?.key, onclick: pod ? () => openPod(state.view, pod.key) : null },
      pod ? el("b", {}, pod.letters) : null,
      device.healthy ? null : "✕ ",
      device.id,
    );
    (places.get(device.numa[0]) ?? elsewhere).push(chip);
  }
  for (const [numa, chips] of places) document.querySelector(`[data-devices="${numa}"]`)?.replaceChildren(...chips);
  if (elsewhere.length) elsewhere.unshift(el("span", { class: "soft" }, "without NUMA node: "));
  byId("elsewhere").replaceChildren(...elsewhere);
}

const LEGEND_MOST = 16;

function drawLegend({ holdings, pods }) {
  const having = pods.filter((pod) => pod.mark !== null && pod.placement);
  const items = [];
  if (holdings.sharedCPUs === null) {
    items.push(el("li", {}, el("span", { class: "swatch shared" }), "shared by all (CPU manager none)"));
  } else {
    items.push(el("li", {}, el("span", { class: "swatch shared" }), "shared"));
    if (holdings.reservedCPUs) items.push(el("li", {}, el("span", { class: "swatch reserved" }, "R"), "reserved for the system"));
  }
  for (const pod of having.slice(0, LEGEND_MOST)) {
    items.push(
      el("li", {}, el("button", { type: "button", class: "plain", "data-key": `legend ${pod.key}`, "data-pod": pod.key, onclick: () => openPod(state.view, pod.key) }, swatch(pod), el("span", {}, fullName(pod)))),
    );
  }
  if (having.length > LEGEND_MOST) items.push(el("li", { class: "soft" }, `and ${having.length - LEGEND_MOST} more in the list of pods`));
  fill(byId("legend"), items);
}

// ------------------------------------------------------------ table

function drawTable(view) {
  const rows = [];
  for (const numa of view.machine.numa) {
    for (const group of numa.groups) {
      for (const core of group.cores) {
        for (const cpu of core.cpus) {
          const owner = state.owners.get(cpu);
          rows.push([cpu, core.id, group.cache ?? "–", numa.id, group.socket, owner]);
        }
      }
    }
  }
  rows.sort((one, other) => one[0] - other[0]);
  const head = ["CPU", "Core", "L3", "NUMA", "Socket", "Owner"].map((name) => el("th", { scope: "col" }, name));
  const body = rows.map(([cpu, ...rest]) => {
    const owner = rest.pop();
    const who = owner.pod ? el("button", { type: "button", class: "plain", "data-key": `cpu ${cpu}`, onclick: () => openPod(view, owner.pod.key) }, swatch(owner.pod), ownerText(owner)) : ownerText(owner);
    return el("tr", {}, el("th", { scope: "row" }, String(cpu)), rest.map((value) => el("td", {}, String(value))), el("td", {}, who));
  });
  const caption = el("caption", { class: "hidden" }, "CPUs and their owners");
  const distances = view.machine.numa.some((numa) => numa.distances.length > 1) ? distanceTable(view.machine) : null;
  fill(byId("table"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "CPUs and their owners" }, el("table", {}, caption, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body))), distances);
}

function distanceTable(machine) {
  const numbers = machine.numa.map((numa) => numa.id);
  const head = el("tr", {}, el("th", {}, "from \\ to"), numbers.map((id) => el("th", { scope: "col" }, `NUMA ${id}`)));
  const body = machine.numa.map((numa) => el("tr", {}, el("th", { scope: "row" }, `NUMA ${numa.id}`), numbers.map((id, at) => el("td", {}, String(numa.distances[id] ?? numa.distances[at] ?? "–")))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "distances between NUMA nodes" }, el("table", {}, el("caption", {}, "Distances"), el("thead", {}, head), el("tbody", {}, body)));
}

function show(asTable) {
  state.asTable = asTable;
  byId("drawing").hidden = asTable;
  byId("table").hidden = !asTable;
  byId("as-drawing").setAttribute("aria-pressed", String(!asTable));
  byId("as-table").setAttribute("aria-pressed", String(asTable));
  if (asTable && state.view) drawTable(state.view);
}
byId("as-drawing").addEventListener("click", () => show(false));
byId("as-table").addEventListener("click", () => show(true));

// ------------------------------------------------------------ keyboard and pointer

const drawing = byId("drawing");

function rove(button) {
  const before = drawing.querySelector('.cell[tabindex="0"]');
  if (before) before.tabIndex = -1;
  button.tabIndex = 0;
  state.at = Number(button.dataset.cpu);
  button.focus();
}

/** The nearest cell in a direction: what lies straight ahead counts more than what is beside. */
function nearest(from, dx, dy) {
  const here = from.getBoundingClientRect();
  let best = null;
  let least = Infinity;
  for (const button of state.cells) {
    if (button === from) continue;
    const there = button.getBoundingClientRect();
    const x = (there.left + there.right - here.left - here.right) / 2;
    const y = (there.top + there.bottom - here.top - here.bottom) / 2;
    const ahead = x * dx + y * dy;
    const beside = Math.abs(x * dy) + Math.abs(y * dx);
    if (ahead < 2) continue;
    const cost = ahead + 4 * beside;
    if (cost < least) [best, least] = [button, cost];
  }
  return best;
}

function neighbour(button, key) {
  const numa = button.closest(".numa");
  const own = [...numa.querySelectorAll(".cell")];
  const numas = [...drawing.querySelectorAll(".numa")].filter((one) => one.querySelector(".cell"));
  const next = (step) => numas[numas.indexOf(numa) + step]?.querySelector(".cell");
  switch (key) {
    case "ArrowRight": return nearest(button, 1, 0);
    case "ArrowLeft": return nearest(button, -1, 0);
    case "ArrowDown": return nearest(button, 0, 1);
    case "ArrowUp": return nearest(button, 0, -1);
    case "Home": return own[0];
    case "End": return own.at(-1);
    case "PageDown": return next(1);
    case "PageUp": return next(-1);
    default: return undefined;
  }
}

drawing.addEventListener("keydown", (event) => {
  const button = event.target.closest(".cell");
  if (!button || event.ctrlKey || event.altKey || event.metaKey) return;
  const found = neighbour(button, event.key);
  if (found === undefined) return;
  event.preventDefault();
  if (found) rove(found);
});

drawing.addEventListener("click", (event) => {
  const button = event.target.closest(".cell");
  if (!button) return;
  rove(button);
  const cpu = Number(button.dataset.cpu);
  const owner = state.owners.get(cpu);
  if (owner.pod) openPod(state.view, owner.pod.key);
  else openCPU(state.view, button.dataset.place, owner.kind);
});

const tip = byId("tip");

function point(target) {
  const button = target?.closest?.(".cell");
  light(target?.closest?.("[data-pod]")?.dataset.pod || "");
  tip.hidden = !button;
  if (!button) return;
  tip.replaceChildren(el("b", {}, ownerText(state.owners.get(Number(button.dataset.cpu)))), el("span", {}, button.dataset.place));
  const box = button.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  const left = Math.min(Math.max(4, box.left + box.width / 2 - size.width / 2), innerWidth - size.width - 4);
  const top = box.top - size.height - 6 < 4 ? box.bottom + 6 : box.top - size.height - 6;
  tip.style.setProperty("left", `${left}px`);
  tip.style.setProperty("top", `${top}px`);
}

/** Highlights the resources of a pod. */
function light(key) {
  const lit = key && [...document.querySelectorAll(`#machine [data-pod="${CSS.escape(key)}"]`)];
  byId("machine").classList.toggle("dim", Boolean(lit?.length));
  document.querySelectorAll(".lit").forEach((one) => one.classList.remove("lit"));
  if (lit) lit.forEach((one) => one.classList.add("lit"));
}

for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, (event) => point(event.target));
document.addEventListener("focusout", () => point(null));
document.addEventListener("scroll", () => { tip.hidden = true; }, { capture: true, passive: true });
