// Ages and remaining times, kept up to date. The server writes the same words.

const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60]];

function inWords(seconds, round = Math.floor) {
  for (const [name, size] of UNITS) {
    if (seconds >= size) return `${round(seconds / size)} ${name}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}

export function tick() {
  const now = Date.now() / 1000;
  for (const time of document.querySelectorAll("time[data-ago]")) {
    time.textContent = `${inWords(now - Date.parse(time.dateTime) / 1000)} ago`;
  }
  for (const time of document.querySelectorAll("time[data-left]")) {
    const left = Date.parse(time.dateTime) / 1000 - now;
    time.textContent = left > 0 ? `${inWords(left, Math.round)} left` : "expired";
    time.classList.toggle("soon", left < 600);
  }
}
