// The pages work without this script. It adds plots, shows the hits of a search as they are found,
// and reloads pages. No value becomes HTML: the script creates only text nodes.
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

// --- plots --------------------------------------------------------------------------------------

const COUNTS = [1, 2, 5].flatMap((each) => [...Array(16).keys()].map((power) => each * 10 ** power))
  .sort((one, other) => one - other);
const POWERS_OF_2 = [...Array(54).keys()].map((power) => 2 ** power);
const SECONDS = [...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms / 1000),
  1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((min) => min * 60),
  ...[1, 2, 3, 6, 12].map((h) => h * 3600), ...[1, 2, 3, 7, 14, 30, 90, 180, 365, 1825].map((d) => d * 86400)];

// The kinds of numbers of a plot: their text, the possible distances of ticks, and the range of the
// axis for the smallest and the largest number. An empty range has no ticks, so it is widened:
// around its single value, or up to 1 for rates, which begin at 0.
const UNITS = {
  offset: {
    text: (value) => value.toLocaleString("en", { maximumFractionDigits: 3 }),
    ticks: COUNTS,
    range: (low, high) => {
      const more = Math.max(1, Math.ceil((high - low) / 20));
      return [low < more ? 0 : low - more, high + more];
    },
  },
  "records/s": { text: (value) => `${rounded(value)}/s`, ticks: undefined, range: rateRange },
  "bytes/s": { text: (value) => `${bytes(value)}/s`, ticks: POWERS_OF_2, range: rateRange },
};

function rateRange(_, high) {
  return [0, high > 0 ? high * 1.08 : 1];
}

function rounded(value) {
  const precision = Math.abs(value) < 100 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 };
  return value.toLocaleString("en", precision);
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return `${value.toLocaleString("en", { maximumSignificantDigits: 3, useGrouping: false })} ${units[unit]}`;
}

// Distances of ticks on the time axis in seconds, at least a hundredth: with less, all ticks would
// have the same text.
function timeRange(low, high) {
  const more = low === high ? 30 : Math.max(0, (0.01 - (high - low)) / 2);
  return [low - more, high + more];
}

// The part of a time in which two ticks differ; for ticks a day or more apart, the date.
function moments(splits, step) {
  const day = splits.length > 0 && new Date(splits[0] * 1000).toISOString().slice(0, 10) !==
    new Date(splits.at(-1) * 1000).toISOString().slice(0, 10);
  return splits.map((each) => {
    const text = new Date(Math.round(each * 1000)).toISOString();
    if (step >= 86400) return text.slice(step >= 180 * 86400 ? 0 : 5, 10);
    const hour = text.slice(11, step >= 60 ? 16 : step >= 1 ? 19 : 23);
    return day && step >= 60 ? `${text.slice(5, 10)} ${hour}` : hour;
  });
}

// Draw series of numbers over times. A value that is not a finite number (null, NaN) is a gap.
function plot(place, timesUs, series, { unit, height, stepped }) {
  const { text, ticks, range } = UNITS[unit];
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line") } };
  const [first, last] = [timesUs[0] / 1e6, timesUs.at(-1) / 1e6];
  const shade = (index) => (index || stepped ? SHADES[index % SHADES.length] : colour("--accent"));
  const finite = (values) => values.map((each) => (Number.isFinite(each) ? each : null));
  const made = new uPlot({
    width: place.clientWidth, height,
    tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "UTC"),
    axes: [
      { ...axis, space: 90, incrs: SECONDS,
        values: (_, splits, __, ___, step) => moments(splits, step) },
      { ...axis, size: 84, ...(ticks ? { incrs: ticks } : {}),
        values: (_, splits) => splits.map(text) },
    ],
    scales: {
      // For a single time uPlot gives a range of a thousand days, whose ticks are all midnight.
      x: { time: true, range: (_, low, high) => (first === last ? timeRange(first, last) : timeRange(low, high)) },
      y: { range: (_, low, high) => range(low ?? 0, high ?? 0) },
    },
    series: [
      { label: "Time (UTC)", value: (_, s) => (s == null ? "–" : time(Math.round(s * 1e6))) },
      ...series.map((each, index) => ({
        label: each.name, stroke: shade(index), width: 2, spanGaps: stepped,
        value: (_, value) => (value == null ? "–" : text(value)),
        points: { show: stepped && timesUs.length < 60 },
        ...(stepped ? { paths: uPlot.paths.stepped({ align: 1 }) }
          : { fill: shade(index) + "22" }),
      })),
    ],
  }, [timesUs.map((each) => each / 1e6), ...series.map((each) => finite(each.values))], place);
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth !== width) { width = place.clientWidth; made.setSize({ width, height }); }
  }).observe(place);
  place.plot = made;
  return made;
}

async function plotHistory(place) {
  const answer = await fetch(place.dataset.source);
  const history = await answer.json();
  if (!answer.ok) { place.textContent = history.error; return; }
  if (history.times_us.length === 0) {
    place.textContent = "The offsets table has no commit of this group.";
    place.classList.add("empty");
    return;
  }
  const series = history.series.map(({ name, offsets }) => ({ name, values: offsets }));
  plot(place, history.times_us, series, { unit: "offset", height: 260, stepped: true });
}

function plotRates(place) {
  const { times_us: timesUs, values } = JSON.parse(place.dataset.rates);
  const { name, unit } = place.dataset;
  plot(place, timesUs, [{ name, values }], { unit, height: 190, stepped: false });
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
  // Python, which renders the pages, has only the years 1 to 9999.
  if (ms >= 253402300800000 || ms < -62135596800000) return us + " µs";
  const fraction = us - ms * 1000;
  const text = new Date(ms).toISOString().replace("T", " ").replace("Z", "");
  return (fraction ? text + String(fraction).padStart(3, "0") : text.replace(".000", "")) + "Z";
}

// A time for a link: its shown text, or milliseconds if it is outside of the calendar.
function moment(us) {
  const text = time(us);
  return text.endsWith("Z") ? text : String(Math.floor(us / 1000));
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
          make("a", { href: "/records?" + new URLSearchParams({ topic, time: moment(it.timestamp_us) }) },
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
      // The browser hides the body of an error's answer from this code, so the same search is sent again.
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
for (const place of document.querySelectorAll(".plot[data-rates]")) plotRates(place);
if (document.querySelector(".plot")) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
}
const form = document.getElementById("search");
if (form) search(form);
const box = document.getElementById("reload");
if (box) reloading(box);
