// Runs before the page is drawn: the theme is light, dark, or the system's.
"use strict";
(() => {
  const order = ["system", "light", "dark"];
  const root = document.documentElement;
  let kept = "system";
  try {
    kept = localStorage.getItem("theme") ?? "system";
  } catch {
    // Without local storage the theme is the system's.
  }
  const set = (theme) => {
    kept = order.includes(theme) ? theme : "system";
    if (kept === "system") delete root.dataset.theme;
    else root.dataset.theme = kept;
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = `Theme: ${kept}`;
      button.title = `Switch to ${order[(order.indexOf(kept) + 1) % order.length]}`;
    }
    document.dispatchEvent(new Event("themed"));
  };
  set(kept);
  document.addEventListener("DOMContentLoaded", () => {
    set(kept);
    document.getElementById("theme").addEventListener("click", () => {
      set(order[(order.indexOf(kept) + 1) % order.length]);
      try {
        localStorage.setItem("theme", kept);
      } catch {
        // Without local storage the choice lasts until the page is closed.
      }
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => set(kept));
  });
})();
