// The page's content arrives as sections; each is redrawn when it changes.
import { byId, el, fill } from "./dom.js";
import { drawCharts, takeSamples } from "./charts.js";
import { drawEvents } from "./events.js";
import { drawMachine } from "./machine.js";
import { closePanel, openRanks, refreshPanel } from "./panel.js";
import { drawPods } from "./pods.js";
import { request } from "./session.js";

const view = { about: {}, machine: null, holdings: null, resources: [], conditions: [], pods: [], events: [], charts: [] };
window.nodewright = view;

const DRAWN_BY = {
  about: [drawAbout, drawPods],
  machine: [drawMachine],
  holdings: [drawMachine],
  resources: [drawResources],
  conditions: [drawConditions],
  pods: [drawPods, drawMachine, refreshPanel],
  events: [drawEvents],
  charts: [drawCharts],
};

function take(sections) {
  const { samples, ...changed } = sections;
  Object.assign(view, changed);
  const drawing = new Set(Object.keys(changed).flatMap((name) => DRAWN_BY[name] ?? []));
  drawing.forEach((draw) => draw(view, changed));
  if (samples) takeSamples(view, samples);
}

function drawAbout() {
  const { about } = view;
  const isPlan = about.kind === "PlanView";
  document.body.classList.toggle("plan", isPlan);
  document.title = `${about.node} – nodewright`;
  byId("node").textContent = about.node;
  const parts = [isPlan ? "plan" : `agent ${about.version}${about.runtime ? `, ${about.runtime}` : ""}`];
  parts.push(`Kubernetes ${about.release.replace("v", "")}${about.release.replace("v", "").startsWith(about.rulesOf) ? "" : `, with the rules of ${about.rulesOf}`}`);
  parts.push(...about.settings.map(([name, value]) => `${name} ${value}`));
  byId("about").textContent = parts.join(" · ");
  const notices = [];
  const notice = (tone, text) => notices.push(el("p", { class: `notice ${tone}` }, text));
  if (about.takesNoPods) notice("wait", `The node accepts no pods: ${about.takesNoPods}`);
  for (const fault of about.faults ?? []) notice("bad", `The files have errors; the page shows the previous version. ${fault}`);
  for (const text of about.policies ?? []) notice("wait", text);
  for (const text of about.warnings ?? []) notice("wait", text);
  const skipped = Object.entries(about.skipped ?? {});
  if (skipped.length) notice("quiet", `Skipped: ${skipped.map(([kind, many]) => `${many} ${kind}`).join(", ")}`);
  fill(byId("notices"), notices);
}

function drawConditions() {
  const chips = view.conditions.map((one) => {
    const isReady = one.type === "Ready";
    const holds = one.status === "True";
    const bad = isReady ? !holds : holds;
    const text = isReady ? (holds ? "Ready" : "NotReady") : one.type;
    if (!isReady && !holds) return null;
    return el("li", { class: `chip ${bad ? "bad" : "good"}`, title: one.message || one.reason }, bad ? `! ${text}` : text);
  });
  const { answers } = view.about;
  for (const [word, many] of Object.entries(answers ?? {})) {
    chips.push(el("li", { class: `chip ${{ admitted: "good", refused: "bad" }[word] ?? "wait"}` }, `${many} ${word}`));
  }
  const short = view.conditions.filter((one) => one.type !== "Ready" && one.status === "True").length;
  if (!short && view.about.kind === "AgentView") chips.push(el("li", { class: "chip quiet" }, "no pressure"));
  fill(byId("conditions"), chips.filter(Boolean));
}

function drawResources() {
  const items = view.resources.map((one) => {
    const share = one.allocatable > 0 ? one.requested / one.allocatable : one.requested ? 1 : 0;
    const [used, has, left] = one.texts;
    const tone = share > 1 ? "over" : share > 0.9 ? "full" : "";
    return el(
      "div",
      { class: "resource", title: `${left} left` },
      el("span", { class: "name" }, one.name),
      el("span", { class: "number" }, el("b", {}, used), ` of ${has}`),
      el("span", { class: `bar ${tone}`, "aria-hidden": "true" }, el("i", { width: `${Math.min(100, 100 * share).toFixed(1)}%` })),
    );
  });
  fill(byId("resources"), [el("p", { class: "soft" }, "Requested by pods, of allocatable"), ...items]);
}

// ------------------------------------------------------------ the stream

const live = byId("live");
let lastUpdateMs = 0;

function showConnection(state, text) {
  if (live.textContent !== text) live.textContent = text;
  live.dataset.state = state;
}

async function follow() {
  try {
    const answer = await request("changes");
    if (answer.status === 403) {
      showConnection("off", "no session");
      fill(byId("notices"), el("p", { class: "notice bad" }, await answer.text()));
      return;
    }
    if (answer.ok) await readEvents(answer.body.pipeThrough(new TextDecoderStream()).getReader());
  } catch {
    // The connection broke: as at its end.
  }
  const since = lastUpdateMs ? `, last update ${new Date(lastUpdateMs).toLocaleTimeString()}` : "";
  showConnection("off", `no connection${since}`);
  // After a restart of the agent the whole document is sent again.
  setTimeout(follow, 2000);
}

/** Takes the events of a stream until its end; EventSource cannot send the header of the session. */
async function readEvents(reader) {
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) takeEvent(event.slice(6));
  }
}

function takeEvent(text) {
  lastUpdateMs = Date.now();
  showConnection("on", "live");
  const sections = JSON.parse(text);
  take(sections);
  if (sections.conditions === undefined && sections.about) drawConditions();
}

byId("close").addEventListener("click", closePanel);
byId("ranks").addEventListener("click", () => openRanks(view));
byId("filter").addEventListener("input", () => drawPods(view));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("panel").hidden) {
    closePanel();
    event.preventDefault();
  }
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    byId("filter").focus();
    event.preventDefault();
  }
});
follow();
