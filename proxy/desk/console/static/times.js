// Ages and remaining times, kept up to date. The server writes the same words.

const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60]];

// Between one and two of a unit the next smaller one is used, since half of one would be lost.
function remaining(seconds) {
  for (const [name, size] of UNITS) {
    const count = seconds / size;
    const isNearOne = count >= 0.99 && count <= 1.05;
    if (count >= 1.95 || isNearOne || (size === 60 && count >= 1)) {
      return `${Math.round(count)} ${name}`;
    }
  }
  return inWords(seconds);
}

function inWords(seconds) {
  for (const [name, size] of UNITS) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name}`;
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
    time.textContent = left > 0 ? `${remaining(left)} left` : "expired";
    time.classList.toggle("soon", left < 600);
  }
}
