// The list of pods, failed ones first; each opens the reasons for its placement.
import { byId, count, el, fill, fullName, swatch } from "./dom.js";
import { openPod } from "./panel.js";

const GROUPS = [
  ["bad", "Refused or failing"],
  ["wait", "Pending"],
  ["good", "On the node"],
  ["over", "Ended"],
];

export function drawPods(view) {
  const words = byId("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const found = view.pods.filter((pod) => words.every((word) => textOf(pod).includes(word)));
  const bad = view.pods.filter((pod) => pod.tone === "bad").length;
  byId("pods-facts").textContent = [words.length ? `${found.length} of ${view.pods.length}` : count(view.pods.length, "pod"), bad ? `${bad} refused or failing` : ""].filter(Boolean).join(" · ");
  byId("ranks").hidden = !view.about.ranks;
  const parts = GROUPS.flatMap(([tone, title]) => {
    const own = found.filter((pod) => pod.tone === tone);
    if (!own.length) return [];
    return [el("h3", {}, title, el("span", { class: "soft" }, ` ${own.length}`)), el("ul", { class: "podlist" }, own.map((pod) => row(view, pod)))];
  });
  if (!parts.length) parts.push(el("p", { class: "soft empty" }, view.pods.length ? "No pod matches." : "No pods."));
  fill(byId("list"), parts);
}

const textOf = (pod) => `${fullName(pod)} ${pod.word} ${pod.reason} ${pod.qosClass} ${pod.source} ${pod.letters}`.toLowerCase();

function row(view, pod) {
  const facts = [pod.qosClass];
  const own = ownOf(pod);
  if (own.cpus) facts.push(`CPUs ${own.cpus}`);
  if (own.numa) facts.push(`NUMA ${own.numa}`);
  facts.push(...own.devices);
  const asked = pod.requests.map(([name, text]) => (name === "cpu" ? `${text} CPU` : `${text} ${name}`)).join(", ");
  if (asked) facts.push(asked);
  if (pod.ready && pod.ready !== "1/1") facts.push(`${pod.ready} ready`);
  if (pod.restarts) facts.push(count(pod.restarts, "restart"));
  const notes = [];
  if (pod.preempts.length) notes.push(`preempts ${pod.preempts.join(", ")}`);
  if (pod.preemptedBy) notes.push(`preempted by ${pod.preemptedBy}`);
  if (pod.makesWay) notes.push("preempted");
  if (pod.waitsFor?.length) notes.push(`waits for ${pod.waitsFor.join(", ")}`);
  const said = pod.message ? el("span", { class: "said" }, pod.message) : null;
  const fix = pod.tone === "bad" && pod.asked ? el("span", { class: "fix" }, "Reasons and fixes") : null;
  return el(
    "li",
    {},
    el(
      "button",
      { type: "button", class: `pod ${pod.tone}`, "data-key": pod.key, "data-pod": pod.key, onclick: () => openPod(view, pod.key) },
      swatch(pod),
      el("span", { class: "name" }, el("span", { class: "soft" }, `${pod.namespace}/`), pod.name, pod.isCritical ? el("span", { class: "tag" }, "critical") : null),
      el("span", { class: `word ${pod.tone}` }, pod.reason && pod.word === "refused" ? pod.reason : pod.word),
      el("span", { class: "facts" }, facts.join(" · ")),
      notes.length ? el("span", { class: "notes" }, notes.join("; ")) : null,
      said,
      fix,
    ),
  );
}

/** The exclusive resources of a pod, in short. */
export function ownOf(pod) {
  const placement = pod.placement;
  if (!placement) return { cpus: "", numa: "", devices: [] };
  const containers = placement.containers.filter((one) => one.cpus || one.numa);
  const cpus = [...new Set([placement.podCPUs, ...containers.map((one) => one.cpus)].filter(Boolean))];
  const numa = [...new Set(containers.flatMap((one) => one.numa ?? []))].sort((one, other) => one - other);
  const devices = placement.containers.flatMap((one) => Object.values(one.devices).flat());
  return { cpus: cpus.join(" + "), numa: numa.join(","), devices };
}
