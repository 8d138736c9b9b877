// Deciding: one key, some seconds in which it can be taken back, and the next reply meanwhile.
//
// A verdict is sent when its time is up, when the next one is given, and at once when the page goes
// away: what a reviewer decided is never lost, and what was undone was never sent. An edit is its
// own confirmation and is sent at once, because the server may find something wrong with it.

const DELAY_MS = 5_000;
const MOST_LATER = 50_000; // bytes that a closing page may still send

const DONE = { approve: "Approved", reject: "Rejected", edit: "Sent as edited" };

let pending;
let begin = () => {};

export function takeForms(main, start) {
  begin = start;
  const form = main.querySelector("[data-decide]");
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    void decide(form, event.submitter?.value ?? "approve");
  });
}

/** Whether the key meant something on this page. */
export function decideByKey(main, key) {
  const review = main.querySelector("[data-review]");
  if (!review) return false;
  if (key === "j") return void swap(review.dataset.next) ?? true;
  if (key === "k") return void history.back() ?? true;
  const control = review.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!control) return false;
  if (control.matches("button")) control.form.requestSubmit(control);
  else if (control.matches("input")) control.checked = true;
  else if (control.matches("summary")) openEditor(control.parentElement);
  else control.focus();
  return true;
}

function openEditor(details) {
  details.open = true;
  details.querySelector("textarea")?.focus();
}

async function decide(form, verdict) {
  const isSent = flush(); // or the reply before this one would be offered as the next
  const body = new URLSearchParams(new FormData(form));
  body.set("verdict", verdict);
  const review = form.closest("[data-review]");
  const id = review.dataset.review;
  const decision = { id, url: form.action, body, verdict, main: form.closest("main"), href: location.href, title: document.title };
  if (verdict === "edit" || body.toString().length > MOST_LATER) {
    form.inert = true;
    const problem = await send(decision);
    form.inert = false;
    if (problem) return tell(problem, { isBad: true });
    tell(DONE[verdict]);
  } else {
    pending = decision;
    decision.toast = tell(DONE[verdict], { action: "Undo", key: "u", act: undo, lastsMs: DELAY_MS });
    decision.timer = setTimeout(() => void flush(), DELAY_MS);
  }
  await isSent;
  if (document.contains(review)) await swap(review.dataset.next); // not after an undo
}

/** Takes back the last verdict, if it was not sent yet. */
export function undo() {
  if (!pending) return false;
  const decision = pending;
  pending = undefined;
  clearTimeout(decision.timer);
  decision.toast.remove();
  document.querySelector("main").replaceWith(decision.main);
  document.title = decision.title;
  history.pushState(null, "", decision.href);
  decision.main.focus();
  return true;
}

async function flush() {
  if (!pending) return;
  const decision = pending;
  pending = undefined;
  clearTimeout(decision.timer);
  decision.toast.remove();
  const problem = await send(decision);
  if (problem) tell(problem, { isBad: true, action: "Open it", act: () => location.assign(decision.href) });
}

/** The sentence that says why it was not taken; nothing where it was. */
async function send({ url, body }) {
  let response;
  try {
    response = await fetch(url, { method: "POST", body, headers: { accept: "application/json" } });
  } catch {
    return "The proxy could not be reached; the verdict was not taken.";
  }
  if (response.redirected) return "You were signed out; the verdict was not taken.";
  if (response.ok) return undefined;
  try {
    return (await response.json()).error.message;
  } catch {
    return `The verdict was not taken (status ${response.status}).`;
  }
}

function sendLast() {
  if (!pending) return;
  const { url, body, timer, toast } = pending;
  clearTimeout(timer);
  toast.remove();
  pending = undefined;
  navigator.sendBeacon(url, body);
}

/** Puts another page of the console in the place of this one, so that an undo can wait. */
async function swap(address, { isBack = false } = {}) {
  let response, page;
  try {
    response = await fetch(address);
    page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    return location.assign(address);
  }
  const main = page.querySelector("main[data-page]");
  if (!response.ok || !main) return location.assign(address);
  document.querySelector("main").replaceWith(main);
  document.title = page.title;
  const nav = page.querySelector(".side nav");
  if (nav) document.querySelector(".side nav").replaceWith(nav);
  if (!isBack) history.pushState(null, "", response.url);
  scrollTo(0, 0);
  begin(main);
  const row = pending && main.querySelector(`[data-id="${CSS.escape(pending.id)}"]`);
  row?.classList.add("gone"); // it is as good as decided
  main.focus({ preventScroll: true });
}

function tell(text, { action, key, act, isBad = false, lastsMs } = {}) {
  const toast = document.createElement("div");
  toast.className = isBad ? "toast bad" : "toast";
  const words = document.createElement("span");
  words.textContent = text;
  toast.append(words);
  if (action) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = action;
    if (key) {
      const hint = document.createElement("kbd");
      hint.textContent = key;
      button.append(hint);
    }
    button.addEventListener("click", act);
    toast.append(button);
  }
  document.querySelector("[data-toasts]").append(toast);
  setTimeout(() => toast.remove(), lastsMs ?? (isBad ? 12_000 : 3_000));
  return toast;
}

addEventListener("pagehide", sendLast);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) sendLast(); // a phone may never say more than this
});
addEventListener("popstate", () => void swap(location.href, { isBack: true }));
