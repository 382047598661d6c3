// The side panel: a pod with the reasons for its placement and the fixes, a shared CPU, or the eviction ranking.
import { age, byId, bytes, count, el, fill, fullName, swatch } from "./dom.js";
import { request } from "./session.js";

const panel = byId("panel");
const body = byId("panel-body");
const open = { key: null, from: null, asked: 0, shown: "" };

function begin(title, key) {
  if (panel.hidden) open.from = document.activeElement;
  open.key = key;
  open.asked += 1;
  fill(byId("panel-title"), title);
  panel.hidden = false;
  document.body.classList.add("beside");
  panel.focus({ preventScroll: true });
  panel.scrollTop = 0;
  return open.asked;
}

export function closePanel() {
  panel.hidden = true;
  open.key = null;
  document.body.classList.remove("beside");
  const { from } = open;
  const again = from?.isConnected ? from : document.querySelector(`[data-key="${CSS.escape(from?.dataset?.key ?? "")}"]`);
  again?.focus();
}

/** ``closed``: lists of what each NUMA node has are closed, because a table has it. */
const tree = (branches, closed = false, depth = 0) =>
  el("ul", { class: depth ? "" : "tree" }, branches.map((one) => {
    const text = el("span", { class: `said-${one.tone}` }, { yes: "✓ ", no: "✕ ", warning: "! " }[one.tone] ?? "", one.text);
    if (!one.below.length) return el("li", {}, text);
    const isList = one.below.every((below) => !below.below.length && below.tone === "plain");
    const isOpen = one.below.some((below) => !below.detail) && !(closed && depth > 0 && isList);
    return el("li", {}, el("details", { open: isOpen }, el("summary", {}, text), tree(one.below, closed, depth + 1)));
  }));

const section = (title, ...inside) => el("section", {}, el("h3", {}, title), ...inside);
const pairs = (rows) => el("dl", { class: "pairs" }, rows.filter(([, value]) => value !== "" && value !== null && value !== undefined).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

async function ask(route) {
  const answer = await request(route);
  if (!answer.ok) {
    const status = await answer.json().catch(() => ({}));
    throw new Error(status.message ?? `the server returned ${answer.status}`);
  }
  return answer.json();
}

// ------------------------------------------------------------ a pod

export async function openPod(view, key) {
  const pod = view.pods.find((one) => one.key === key);
  if (!pod) return;
  const number = begin([swatch(pod), el("span", {}, el("span", { class: "soft" }, `${pod.namespace}/`), pod.name)], key);
  const why = el("div", { class: "why", "aria-live": "polite", "aria-busy": "true" }, pod.asked ? el("p", { class: "soft waiting" }, "loading …") : null);
  open.shown = essence(pod);
  const facts = el("div", { id: "panel-facts" }, factsOf(view, pod));
  fill(body, facts, why);
  try {
    const found = await ask(`why/${encodeURIComponent(key)}`);
    if (open.asked === number) fill(why, whyOf(pod, found));
  } catch (error) {
    if (open.asked === number) fill(why, el("p", { class: "said-no" }, `Loading failed: ${error.message}`));
  }
  why.setAttribute("aria-busy", "false");
}

const essence = (pod) => JSON.stringify([pod.stage, pod.word, pod.reason, pod.message, pod.placement]);

/** Updates the open pod's facts, and loads its explanation again if the state or the placement has changed. */
export function refreshPanel(view) {
  if (open.key === null) return;
  const pod = view.pods.find((one) => one.key === open.key);
  if (!pod) {
    byId("panel-facts")?.replaceChildren(el("p", { class: "said-no" }, "This pod has been removed."));
    return;
  }
  byId("panel-facts")?.replaceChildren(...factsOf(view, pod));
  if (essence(pod) !== open.shown && byId("panel-facts")) {
    const { from } = open;
    openPod(view, pod.key);
    open.from = from;
  }
}

function factsOf(view, pod) {
  const word = pod.reason && pod.reason !== pod.word ? `${pod.word} (${pod.reason})` : pod.word;
  const asked = pod.requests.map(([name, text]) => `${name} ${text}`).join(", ");
  const rows = [
    ["State", el("span", { class: `word ${pod.tone}` }, word)],
    ["Class", `${pod.qosClass}${pod.isCritical ? ", critical" : ""}`],
    ["Priority", String(pod.priority)],
    ["Requests", asked || "nothing"],
    ["Source", pod.source],
    ["Containers", pod.ready ? `${pod.ready} ready${pod.restarts ? `, ${count(pod.restarts, "restart")}` : ""}` : ""],
    ["Created", pod.created ? `${age(Date.parse(pod.created))} ago` : ""],
    ["Waits for", (pod.waitsFor ?? []).join(", ")],
    ["Preempts", pod.preempts.join(", ")],
    ["Preempted by", pod.preemptedBy],
  ];
  const parts = [pairs(rows)];
  if (pod.message) parts.push(el("p", { class: "kubelet" }, pod.message));
  if (pod.placement) parts.push(section("Exclusive resources", placementTable(pod.placement)));
  const events = view.events.filter((one) => one.namespace === pod.namespace && one.name === pod.name).slice(0, 8);
  if (events.length) {
    parts.push(section("Events", el("ul", { class: "small" }, events.map((one) => el("li", { class: one.isWarning ? "said-warning" : "" }, `${age(one.atMs)} ago  ${one.reason}: ${one.message}${one.count > 1 ? ` (${one.count}×)` : ""}`)))));
  }
  return parts;
}

function placementTable(placement) {
  const blocks = (list) => list.filter((one) => one.size).map((one) => `${one.type === "memory" ? "" : `${one.type} `}${bytes(one.size)} on NUMA ${one.numaNodes.join(", ")}`).join("; ");
  const rows = placement.containers.map((one) => [
    one.container,
    one.cpus ?? "shared",
    one.numa ? `${one.numa.join(",")}${one.preferred ? "" : " (not preferred)"}` : "–",
    [blocks(one.memory), ...Object.entries(one.devices).map(([name, list]) => `${name}: ${list.join(", ")}`)].filter(Boolean).join("; ") || "–",
  ]);
  if (placement.podCPUs || placement.podMemory) rows.unshift(["(the whole pod)", placement.podCPUs ?? "–", "–", blocks(placement.podMemory ?? []) || "–"]);
  return tableOf(["Container", "CPUs", "NUMA", "Memory, devices"], rows);
}

const tableOf = (heads, rows) =>
  el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))));

function whyOf(pod, found) {
  const parts = [];
  const { now } = found;
  if (now?.fixes) {
    const fixes = now.fixes.map((one) => el("li", {}, el("span", { class: "kind" }, one.kind), one.text));
    parts.push(
      section(
        now.fixes.length ? "What would let it in" : "No single change that was tried would let it in",
        now.fixes.length ? el("p", { class: "soft" }, "Each change was tried on this node and is the smallest of its kind that works.") : null,
        now.fixes.length ? el("ul", { class: "fixes" }, fixes) : null,
        ...now.beside.map((text) => el("p", { class: "soft" }, text)),
      ),
    );
  }
  if (now) {
    const title = found.asNewArrival ? `If it arrived now, after all other pods: ${now.verdict}` : found.decision ? `On the node in its current state: ${now.verdict}` : "Why";
    const said = now.message && now.message !== pod.message ? el("p", { class: "kubelet" }, `${now.reason}: ${now.message}`) : null;
    parts.push(section(title, said, ...now.tables.map(numaTable), tree(now.tree, now.tables.length > 0)));
  }
  if (found.because?.length) parts.push(section(`Decision on arrival: ${found.decision}`, el("ul", { class: "tree" }, found.because.map((text) => el("li", {}, text)))));
  if (found.cgroups?.length) {
    const groups = found.cgroups.map((one) => el("details", {}, el("summary", {}, one.container || "the pod", el("code", { class: "soft" }, ` ${one.path}`)), tableOf(["File", "Value", "Why"], one.files.map(([file, value, text]) => [el("code", {}, file), el("code", {}, value), text]))));
    parts.push(section("Cgroups", ...groups));
  }
  if (!parts.length) parts.push(el("p", { class: "soft" }, "No further information."));
  return parts;
}

/** NUMA nodes as rows, resources as columns. */
function numaTable(table) {
  const heads = table.columns.map((one) => el("th", { scope: "col" }, one.resource, el("br", {}), el("span", { class: "soft" }, `${one.requested} requested${one.hint ? `; ${one.hint}` : ""}`)));
  const cell = (one) => el("td", {}, one && el("span", { class: one.is_enough ? "said-yes" : "said-no" }, one.is_enough ? "✓ " : "✕ ", one.text), one?.holders ? el("span", { class: "soft" }, el("br", {}), one.holders) : null);
  const rows = table.rows.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), one.cells.map(cell)));
  return el("div", { class: "scroll" }, el("table", { class: "numatable" }, el("caption", {}, `${table.container ? `container ${table.container}` : "all containers together"}; ✓ alone has enough`), el("thead", {}, el("tr", {}, el("td", {}), heads)), el("tbody", {}, rows)));
}

// ------------------------------------------------------------ other things

export function openCPU(view, place, kind) {
  begin(place, null);
  if (kind === "reserved") {
    fill(body, el("p", {}, "Reserved for the system: no pod gets it exclusively. Pods without exclusive CPUs may run on it unless the policy option strict-cpu-reservation is set."));
    return;
  }
  const sharing = view.pods.filter((pod) => pod.mark !== null && !pod.placement?.containers.some((one) => one.cpus));
  fill(
    body,
    el("p", {}, view.holdings.sharedCPUs === null ? "The CPU manager assigns no exclusive CPUs: every pod may run here." : `Shared: CPUs ${view.holdings.sharedCPUs} are for all containers without exclusive CPUs.`),
    section(`Pods that may run here`, sharing.length ? el("ul", { class: "podnames" }, sharing.map((pod) => el("li", {}, el("button", { type: "button", class: "plain", onclick: () => openPod(view, pod.key) }, swatch(pod), fullName(pod))))) : el("p", { class: "soft" }, "None now.")),
  );
}

export async function openRanks(view) {
  const number = begin("Eviction ranking", null);
  fill(body, el("p", { class: "soft waiting" }, "loading …"));
  try {
    const found = await ask("ranks");
    if (open.asked !== number) return;
    const rows = found.pods.map((one, at) => [
      one.isCritical ? "never" : String(at + 1),
      el("button", { type: "button", class: "plain", onclick: () => openPod(view, one.key) }, fullName(one)),
      one.uses,
      one.requests,
      String(one.priority),
      one.isCritical ? "critical" : one.before,
    ]);
    const going = found.going.length ? el("p", { class: "said-no" }, `At the current usage these pods are evicted: ${found.going.join(", ")}`) : el("p", {}, "At the current usage no pod is evicted.");
    fill(body, going, el("p", { class: "soft" }, `Order of eviction for ${found.signal}:`), rows.length ? tableOf(["Rank", "Pod", "Usage", "Requests", "Priority", "Ranked before the next by"], rows) : el("p", { class: "soft" }, "No pods."));
  } catch (error) {
    if (open.asked === number) fill(body, el("p", { class: "said-no" }, `Loading failed: ${error.message}`));
  }
}
