// Runs before the page is painted, so that it does not flash in the other colours.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // no storage, no choice: the system's colours
}
document.documentElement.classList.add("scripted");
