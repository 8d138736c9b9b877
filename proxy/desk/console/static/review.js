// Deciding: one key, some seconds in which it can be taken back, and the next reply meanwhile.
//
// A verdict is sent when its time is up, when the next one is given, and at once when the page goes
// away: what a reviewer decided is never lost, and what was undone was never sent. An edit is its
// own confirmation and is sent at once, because the server may find something wrong with it. Approving
// calls of tools takes a second step, with a key and a place of its own. `guard.js` says when a reply
// takes a decision at all.

import { clickRefusal, refusal, watchReply } from "./guard.js";

const DELAY_MS = 5_000;
const MOST_LATER = 50_000; // bytes that a closing page may still send

const DONE = { approve: "Approved", reject: "Rejected", edit: "Sent as edited" };
const FIRST = { approve: "Approved by you", edit: "Edited by you" }; // what others have to approve too

let pending;
const sending = new Set(); // decisions that the server has not answered yet
let begin = () => {};
let moving; // the way to the next page, as long as it can be given up

export function takeForms(main, start) {
  begin = start;
  const form = main.querySelector("[data-decide]");
  form?.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.hasAttribute("data-cancel")) return closeConfirmation(form);
    const why = button && clickRefusal(button, event);
    if (!why) return;
    event.preventDefault();
    tell(why);
  });
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    const verdict = event.submitter?.value ?? "approve";
    const isConfirmed = event.submitter?.hasAttribute("data-confirmed");
    if (verdict === "approve" && !isConfirmed && openConfirmation(form)) return;
    void decide(form, verdict, isConfirmed);
  });
  watchReply(main);
  keepClaim(form);
  showApproval(form);
}

const CLAIM_AGAIN_MS = 25_000; // a claim lasts for a minute

let claiming;

// As long as the page is open and seen, the reply stays claimed; others see that.
function keepClaim(form) {
  clearInterval(claiming);
  if (!form) return;
  const claim = async () => {
    if (document.hidden || !document.contains(form)) return;
    const body = new URLSearchParams({ csrf: form.elements.csrf.value });
    try {
      const response = await fetch(form.dataset.claim, { method: "POST", body, headers: { accept: "application/json" } });
      if (!response.ok) return;
      const { claimed_by: other } = await response.json();
      const notice = form.closest("main").querySelector("[data-claimed]");
      notice.hidden = !other;
      if (other) notice.querySelector("bdi").textContent = other;
    } catch {
      // the next one tells
    }
  };
  claiming = setInterval(() => void claim(), CLAIM_AGAIN_MS);
}

// While the reply is being edited, approving would send the old one.
function showApproval(form) {
  const details = form?.querySelector("[data-edit]");
  const approve = form?.querySelector("button[data-key=a]");
  if (!details || !approve) return;
  const show = () => {
    approve.hidden = details.open;
    if (details.open) closeConfirmation(form);
  };
  details.addEventListener("toggle", show);
  show();
}

/** Whether the key meant something on this page. */
export function decideByKey(main, key) {
  const review = main.querySelector("[data-review]");
  if (!review) return false;
  if (key === "j") return void swap(review.dataset.next) ?? true;
  if (key === "k") return void history.back() ?? true;
  if (key === "Escape") return closeConfirmation(review);
  const control = review.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!control || control.closest("[hidden]")) return false;
  if (control.matches("button")) control.click();
  else if (control.matches("input")) choose(control);
  else if (control.matches("summary")) openEditor(control.parentElement);
  else control.focus();
  return true;
}

function choose(label) {
  const why = refusal(label, { isLabel: true });
  if (why) tell(why);
  else label.checked = true;
}

/** Whether the reply calls tools, so that there is something to confirm. */
function openConfirmation(form) {
  const step = form.querySelector("[data-confirm]");
  if (!step) return false;
  step.hidden = false;
  step.focus({ preventScroll: true });
  step.scrollIntoView({ block: "nearest" }); // above the bar of a phone, by its scroll margin
  return true;
}

function closeConfirmation(within) {
  const step = within.querySelector("[data-confirm]:not([hidden])");
  if (step) step.hidden = true;
  return Boolean(step);
}

function openEditor(details) {
  details.open = true;
  details.querySelector("textarea")?.focus();
}

async function decide(form, verdict, isConfirmed) {
  const review = form.closest("[data-review]");
  if (review.dataset.decided) return;
  review.dataset.decided = verdict; // whatever comes now is not about this reply
  const told = (form.hasAttribute("data-first") && FIRST[verdict]) || DONE[verdict];
  const isSent = flush(); // or the reply before this one would be offered as the next
  const body = new URLSearchParams(new FormData(form));
  body.set("verdict", verdict);
  if (isConfirmed) body.set("confirmed", "yes");
  const id = review.dataset.review;
  const decision = { id, url: form.action, body, verdict, main: form.closest("main"), href: location.href, title: document.title };
  if (verdict === "edit" || body.toString().length > MOST_LATER) {
    form.inert = true;
    const problem = await send(decision);
    form.inert = false;
    if (problem) {
      delete review.dataset.decided;
      return tell(problem, { isBad: true });
    }
    tell(told);
  } else {
    pending = decision;
    decision.toast = tell(told, { action: "Undo", key: "u", act: undo, lastsMs: DELAY_MS });
    decision.timer = setTimeout(() => void flush(), DELAY_MS);
  }
  await isSent;
  if (document.contains(review) && review.dataset.decided) await swap(review.dataset.next); // not after an undo
}

/** Takes back the last verdict, if it was not sent yet. */
export function undo() {
  if (!pending) return false;
  const decision = pending;
  pending = undefined;
  clearTimeout(decision.timer);
  decision.toast.remove();
  moving?.abort();
  delete decision.main.querySelector("[data-review]").dataset.decided;
  closeConfirmation(decision.main);
  document.querySelector("main").replaceWith(decision.main);
  document.title = decision.title;
  if (location.href !== decision.href) history.pushState(null, "", decision.href);
  watchReply(decision.main);
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
  else await recount();
}

/** Shows how many wait now; the page was made before the verdict was sent. */
async function recount() {
  try {
    const response = await fetch("/pinocchio/v1/stats", { headers: { accept: "application/json" } });
    if (!response.ok) return;
    const { open } = await response.json();
    for (const each of document.querySelectorAll("[data-open-count]")) {
      each.textContent = open.toLocaleString("en");
    }
  } catch {
    // the next page has it
  }
}

/** The sentence that says why it was not taken; nothing where it was. */
async function send(decision) {
  const { url, body } = decision;
  let response;
  sending.add(decision);
  try {
    response = await fetch(url, { method: "POST", body, headers: { accept: "application/json" } });
  } catch {
    return "The proxy could not be reached; the verdict was not taken.";
  } finally {
    sending.delete(decision);
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

// A page that goes takes the requests under way with it: they are sent once more. One that did arrive
// is decided, and the second is refused.
function sendAgain() {
  for (const { url, body } of sending) navigator.sendBeacon(url, body);
}

/** Puts another page of the console in the place of this one, so that an undo can wait. */
async function swap(address, { isBack = false } = {}) {
  moving?.abort(); // of two ways the later one counts
  const { signal } = (moving = new AbortController());
  let response, page;
  try {
    response = await fetch(address, { signal });
    page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    return signal.aborted ? undefined : location.assign(address);
  }
  if (signal.aborted) return;
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

addEventListener("pagehide", () => {
  sendAgain();
  sendLast();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) sendLast(); // a phone may never say more than this
});
addEventListener("popstate", () => void swap(location.href, { isBack: true }));
