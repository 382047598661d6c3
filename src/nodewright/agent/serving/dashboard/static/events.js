// Events, the newest first; new events are announced to screen readers.
import { age, byId, count, el, fill } from "./dom.js";
import { openPod } from "./panel.js";

let newest = null;

export function drawEvents(view) {
  byId("events").hidden = view.about.kind !== "AgentView";
  const warnings = view.events.filter((one) => one.isWarning).length;
  byId("events-facts").textContent = view.events.length ? `${count(view.events.length, "event")}${warnings ? `, ${count(warnings, "warning")}` : ""}` : "no events";
  fill(byId("happenings"), view.events.map((one) => row(view, one)));
  speak(view.events);
}

function row(view, one) {
  const pod = one.name ? view.pods.find((each) => each.namespace === one.namespace && each.name === one.name) : null;
  const name = `${one.namespace}/${one.name}`;
  const who = pod ? el("button", { type: "button", class: "plain", "data-key": `event ${one.number}`, "data-pod": pod.key, onclick: () => openPod(view, pod.key) }, name) : el("span", {}, one.name ? name : "node");
  return el(
    "li",
    { class: one.isWarning ? "warning" : "" },
    el("time", { datetime: new Date(one.atMs).toISOString(), "data-at": one.atMs, title: new Date(one.atMs).toLocaleString() }, age(one.atMs)),
    el("span", { class: "reason" }, one.isWarning ? "! " : "", one.reason),
    who,
    el("span", { class: "text" }, one.message, one.count > 1 ? el("span", { class: "soft" }, ` ${one.count}×`) : null),
  );
}

function speak(events) {
  const last = newest;
  newest = events.reduce((most, one) => Math.max(most, one.number), last ?? 0);
  if (last === null) return;
  const fresh = events.filter((one) => one.number > last);
  if (!fresh.length) return;
  const announced = fresh.find((one) => one.isWarning) ?? fresh[0];
  const more = fresh.length > 1 ? `, and ${count(fresh.length - 1, "more event")}` : "";
  byId("said").textContent = `${announced.name ? `${announced.namespace}/${announced.name}: ` : ""}${announced.reason}: ${announced.message}${more}`;
}

// Ages are updated in the browser.
setInterval(() => document.querySelectorAll("time[data-at]").forEach((one) => { one.textContent = age(Number(one.dataset.at)); }), 5000);
