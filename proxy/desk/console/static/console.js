// What every page does: colours, filters, times that tick, keys. Each page's own part is a module.

import { drawCharts } from "./charts.js";
import { followQueue, moveInQueue } from "./queue.js";
import { decideByKey, takeForms, undo } from "./review.js";
import { followTraffic } from "./traffic.js";
import { tick } from "./times.js";

const THEMES = { "": "System", light: "Light", dark: "Dark" };

function switchTheme(button) {
  const names = Object.keys(THEMES);
  const show = () => {
    const theme = document.documentElement.dataset.theme ?? "";
    button.querySelector("[data-theme-name]").textContent = THEMES[theme];
    button.setAttribute("aria-label", `Colours: ${theme || "as the system"}`);
  };
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "";
    const next = names[(names.indexOf(now) + 1) % names.length];
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("theme", next);
    } catch {
      // then it holds for this page
    }
    show();
    document.dispatchEvent(new Event("themechange"));
  });
  show();
}

const commands = new Set(); // keys that are down and were taken as commands

function onKey(event) {
  if (event.repeat) return onRepeat(event);
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const at = event.target;
  if (event.key === "Escape" && at.matches("textarea, input, select")) at.blur();
  if (at.matches("textarea, select, input:not([type=radio]):not([type=checkbox])")) return;
  if (event.key === "Enter" && at.matches("[data-decide] input")) return event.preventDefault(); // else it approves
  if (document.querySelector("dialog[open]")) return;
  const main = document.querySelector("main");
  const isDone =
    event.key === "?" ? openKeys() :
    event.key === "u" ? undo() :
    moveInQueue(main, event.key) || decideByKey(main, event.key);
  if (!isDone) return;
  event.preventDefault();
  commands.add(event.key);
}

// A key that is held down is one press; it only goes on walking through the queue. What is left of a
// command goes into no field, and presses no button.
function onRepeat(event) {
  const isWalking = moveInQueue(document.querySelector("main"), event.key);
  const isCommand = commands.has(event.key) || event.target.matches("button, summary, input[type=radio]");
  if (isWalking || isCommand) event.preventDefault();
}

function openKeys() {
  document.querySelector("[data-keys]").showModal();
  return true;
}

/** Everything in `main` that needs a script; called again when it is replaced. */
export function start(main) {
  for (const form of main.querySelectorAll("[data-filters]")) {
    form.addEventListener("change", () => form.requestSubmit());
  }
  takeForms(main, start);
  followQueue(main);
  followTraffic(main);
  drawCharts(main);
  tick();
}

for (const button of document.querySelectorAll("[data-theme-switch]")) switchTheme(button);
document.addEventListener("keydown", onKey);
document.addEventListener("keyup", ({ key }) => commands.delete(key));
addEventListener("blur", () => commands.clear());
setInterval(tick, 15_000);
start(document.querySelector("main"));
