// What pages gain with JavaScript: polling that rests while nobody looks, words for failed requests, times that go on.
// Every button and link works without this file.
"use strict";

(() => {
  const part = () => document.getElementById("part");

  // The page's clock is the database's: what it said, plus what has passed since.
  let serverNow = Date.parse(document.body.dataset.now || "");
  let heardAt = performance.now();

  const say = (text) => {
    const said = document.getElementById("said");
    if (!said) return;
    const line = document.createElement("p");
    line.className = "said s-refused";
    line.textContent = text;
    said.replaceChildren(line);
  };

  // An open form, or a piece of text being selected, must not be swapped away under the operator's hands.
  const isInUse = (element) =>
    element.querySelector("details[open]:not([data-quiet])") !== null ||
    (element.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) ||
    (String(document.getSelection()) !== "" && element.contains(document.getSelection().anchorNode));

  document.addEventListener("htmx:beforeRequest", (event) => {
    const element = event.detail.elt;
    if (element === part() && (document.hidden || isInUse(element))) event.preventDefault();
  });

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && part()) htmx.trigger(part(), "wake");
  });

  // What the server would not or could not do. A failed poll is said once and taken back when one succeeds.
  let isPollLost = false;
  document.addEventListener("htmx:responseError", (event) => {
    const answer = event.detail.xhr;
    const text = (answer.getResponseHeader("Content-Type") || "").startsWith("text/plain") ? answer.responseText : "";
    say(text.slice(0, 300) || `That did not work (${answer.status}).`);
    isPollLost = event.detail.elt === part();
  });
  document.addEventListener("htmx:sendError", (event) => {
    isPollLost = event.detail.elt === part();
    say(isPollLost ? "The web process does not answer: what you see is old." : "The web process does not answer. Nothing was sent.");
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful && isPollLost && event.detail.elt.id === "part") {
      isPollLost = false;
      document.getElementById("said")?.replaceChildren();
    }
  });

  const span = (seconds) => {
    if (seconds < 90) return `${Math.floor(seconds)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 90) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    if (hours < 36) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
    return `${Math.floor(hours / 24)} d`;
  };

  // The same words as webapp/words.py.
  const tell = () => {
    if (document.hidden || Number.isNaN(serverNow)) return;
    const now = serverNow + performance.now() - heardAt;
    for (const time of document.querySelectorAll("time[data-relative]")) {
      const seconds = (now - Date.parse(time.dateTime)) / 1000;
      const words = Math.abs(seconds) < 1 ? "now" : seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
      if (time.textContent !== words) time.textContent = words;
    }
  };
  document.addEventListener("htmx:afterSwap", () => {
    const told = part()?.dataset.now;
    if (told) {
      serverNow = Date.parse(told);
      heardAt = performance.now();
    }
  });
  setInterval(tell, 1000);
})();
