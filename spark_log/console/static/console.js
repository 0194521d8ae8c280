// The pages work without this script. It adds the plot of a group's history, hits of a search as
// they are found, and a page that reloads itself. No value is ever HTML: text nodes alone are made.
"use strict";

const SHADES = ["#c2410c", "#2563eb", "#15803d", "#9333ea", "#0891b2", "#be123c",
  "#a16207", "#4f46e5", "#0f766e", "#db2777", "#65a30d", "#64748b"];

function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// --- the history of a group's offsets -----------------------------------------------------------

async function plotHistory(place) {
  const answer = await fetch(place.dataset.source);
  const history = await answer.json();
  if (!answer.ok) { place.textContent = history.error; return; }
  if (history.times_us.length === 0) {
    place.textContent = "The offsets table has no commit of this group.";
    place.classList.add("empty");
    return;
  }
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line") } };
  const range = (history.times_us.at(-1) - history.times_us[0]) / 1e6;
  const moment = (s) => {
    const text = new Date(s * 1000).toISOString();
    if (range > 3 * 86400) return text.slice(5, 10);
    return range > 300 ? text.slice(11, 16) : text.slice(11, range > 5 ? 19 : 23);
  };
  const times = (_, splits) => splits.map(moment);
  let plot;
  const draw = () => {
    if (plot) plot.destroy();
    const values = (_, splits) => splits.map((each) => each.toLocaleString("en"));
    plot = new uPlot({
      width: place.clientWidth, height: 260, tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "UTC"),
      axes: [{ ...axis, values: times, space: 90 }, { ...axis, size: 78, values }],
      scales: { x: { time: true } },
      series: [{ label: "Time (UTC)", value: (_, s) => (s == null ? "–" : time(Math.round(s * 1e6))) }, ...history.series.map((each, index) => ({
        label: each.name, stroke: SHADES[index % SHADES.length], width: 2,
        points: { show: history.times_us.length < 60 }, spanGaps: true,
        paths: uPlot.paths.stepped({ align: 1 }),
      }))],
    }, [history.times_us.map((each) => each / 1e6), ...history.series.map((each) => each.offsets)],
    place);
  };
  draw();
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth !== width) { width = place.clientWidth; plot.setSize({ width, height: 260 }); }
  }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
}

// --- search -------------------------------------------------------------------------------------

function shown(value) {
  if (value.form === "null") return make("span", { class: "null" }, "null");
  const made = make("code", { class: "v" }, visible(value.text));
  if (value.is_cut) made.append(" …");
  return made;
}

// Control characters and those that change the direction of text, as the pages show them.
function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (found) => "\\" + (found.charCodeAt(0) < 256 ? "x" : "u") +
      found.charCodeAt(0).toString(16).padStart(found.charCodeAt(0) < 256 ? 2 : 4, "0"));
}

function time(us) {
  const ms = Math.floor(us / 1000);
  if (Math.abs(ms) > 8.64e15) return us + " µs";
  const fraction = us - ms * 1000;
  const text = new Date(ms).toISOString().replace("T", " ").replace("Z", "");
  return (fraction ? text + String(fraction).padStart(3, "0") : text.replace(".000", "")) + "Z";
}

function search(form) {
  const bar = document.getElementById("progress");
  const words = document.getElementById("progress-words");
  const stop = document.getElementById("stop");
  const rows = document.getElementById("hits");
  const none = document.getElementById("no-hits");
  let source;

  const end = (sentence) => {
    if (source) source.close();
    source = undefined;
    stop.hidden = true;
    if (sentence) words.textContent = sentence;
  };
  const number = (value) => value.toLocaleString("en");
  const sentence = (it) => `${number(it.hits)} hits in ${number(it.records)} of ` +
    `${number(it.total)} records, ${(it.elapsed_ms / 1000).toFixed(1)} s`;

  form.addEventListener("submit", (event) => {
    if (event.submitter && event.submitter.hasAttribute("formaction")) return;
    event.preventDefault();
    end();
    const query = new URLSearchParams(
      [...new FormData(form)].filter(([name, value]) => value !== "" && name !== "format"));
    const topic = query.get("topic");
    history.replaceState(null, "", `${form.getAttribute("action")}?${query}`);
    rows.replaceChildren();
    document.getElementById("hits-panel").hidden = false;
    none.hidden = true;
    bar.hidden = false;
    bar.removeAttribute("value");
    words.textContent = "Searching …";
    words.classList.remove("bad");
    stop.hidden = false;
    query.delete("run");
    source = new EventSource(`/api/search/stream?${query}`);
    source.addEventListener("hit", (event) => {
      const it = JSON.parse(event.data);
      const at = new URLSearchParams({ topic, partition: it.partition, offset: it.offset });
      rows.append(make("tr", {},
        make("td", { class: "n", "data-label": "Partition" }, String(it.partition)),
        make("td", { class: "n", "data-label": "Offset" },
          make("a", { href: `/record?${at}` }, String(it.offset))),
        make("td", { class: "t", "data-label": "Time" },
          make("a", { href: "/records?" + new URLSearchParams({ topic, time: time(it.timestamp_us) }) },
            time(it.timestamp_us))),
        make("td", { "data-label": "Key" }, shown(it.key)),
        make("td", { "data-label": "Value" }, shown(it.value))));
    });
    source.addEventListener("progress", (event) => {
      const it = JSON.parse(event.data);
      bar.max = Math.max(1, it.total);
      bar.value = it.records;
      words.textContent = sentence(it);
    });
    source.addEventListener("done", (event) => {
      const it = JSON.parse(event.data);
      bar.hidden = true;
      none.hidden = it.hits > 0;
      end(sentence(it) + ".");
    });
    source.addEventListener("failed", (event) => {
      words.classList.add("bad");
      bar.hidden = true;
      end(JSON.parse(event.data).error);
    });
    source.onerror = async () => {
      // Of an answer with an error the browser tells nothing: it is asked for once more.
      const asked = source;
      end("The search was cut off.");
      if (asked && rows.childElementCount === 0) {
        query.set("limit", "1");
        const answer = await fetch(`/api/search?${query}`);
        if (!answer.ok) { words.textContent = (await answer.json()).error; bar.hidden = true; }
      }
      words.classList.add("bad");
    };
  });
  stop.addEventListener("click", () => end(words.textContent + " (stopped)"));
}

// --- a page that reloads itself -----------------------------------------------------------------

function reloading(box) {
  const key = "reload";
  box.closest("label").hidden = false;
  box.checked = sessionStorage.getItem(key) === "1";
  let timer;
  const plan = () => {
    clearTimeout(timer);
    if (box.checked) timer = setTimeout(() => location.reload(), 5000);
  };
  box.addEventListener("change", () => {
    sessionStorage.setItem(key, box.checked ? "1" : "0");
    plan();
  });
  plan();
}

for (const place of document.querySelectorAll(".plot[data-source]")) plotHistory(place);
const form = document.getElementById("search");
if (form) search(form);
const box = document.getElementById("reload");
if (box) reloading(box);
