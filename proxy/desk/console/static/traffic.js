// New exchanges appear at the top, every two seconds while the page is looked at.

const EVERY_MS = 2_000;
const MOST_ROWS = 300;

let timer;

export function followTraffic(main) {
  clearInterval(timer);
  const body = main.querySelector("[data-rows]");
  const button = main.querySelector("[data-live]");
  if (!body) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const isOn = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isOn));
    button.textContent = isOn ? "Live" : "Paused";
  });
  timer = setInterval(() => {
    if (!document.hidden && button.getAttribute("aria-pressed") === "true") void look(body);
  }, EVERY_MS);
}

async function look(body) {
  const url = new URL(body.dataset.rows, location.href);
  const newest = body.querySelector("tr")?.dataset.id;
  if (newest) url.searchParams.set("after", newest);
  let response;
  try {
    response = await fetch(url);
  } catch {
    return; // the next look may find the proxy again
  }
  if (!response.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const rows = [...page.querySelectorAll("tr")];
  if (!rows.length) return;
  for (const row of rows) row.classList.add("fresh");
  body.prepend(...rows);
  document.querySelector("main .empty")?.remove();
  setTimeout(() => rows.forEach((row) => row.classList.remove("fresh")), 1_500);
  while (body.rows.length > MOST_ROWS) body.lastElementChild.remove();
}
