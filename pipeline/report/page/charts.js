"use strict";
const holders = Array.from(document.querySelectorAll("script[data-chart]"));
const views = new Map();
const turns = new Map();

// A chart is drawn anew rather than changed, so that what is drawn for a choice is read as the whole is read.
async function draw(holder, spec, choice) {
  const name = holder.dataset.chart, place = document.getElementById(name);
  const turn = (turns.get(name) || 0) + 1;
  turns.set(name, turn);
  try {
    const canvas = document.createElement("div");
    const view = await vegaEmbed(canvas, spec, { actions: false, renderer: "svg", tooltip: { theme: "custom" } });
    if (turns.get(name) !== turn) { view.finalize(); return; } // Somebody has chosen again meanwhile.
    if (views.has(name)) views.get(name).finalize();
    views.set(name, view);
    place.replaceChildren(canvas);
    place.dataset.drawn = "yes";
    place.dataset.choice = choice;
  } catch (error) {
    place.textContent = "This chart could not be drawn: " + error.message;
    console.error(error);
  }
}

const choices = document.getElementById("choices") && JSON.parse(document.getElementById("choices").textContent);

function at(bin) {
  const ms = choices.begin_ms + bin * choices.step_ms;
  const text = new Date(ms).toISOString().replace("T", " ").replace("Z", "");
  return { at_ms: ms, end_ms: ms + Math.max(choices.step_ms, 1), when: text.replace(/\.000$/, "") };
}

// The bins of a series, in the order of time, with a number for each run of bins without a gap.
function rows(series, make) {
  let run = 0, before = null;
  return (series ? series[0] : []).map((bin, place) => {
    run += bin - 1 === before ? 0 : 1;
    before = bin;
    return { ...at(bin), run, ...make(series[1][place]) };
  });
}

// The same for every bin there is: where nothing is known there was nothing.
function everywhere(series, make) {
  const known = new Map((series ? series[0] : []).map((bin, place) => [bin, series[1][place]]));
  return Array.from({ length: choices.bins }, (_, bin) => ({ ...at(bin), ...make(known.get(bin) || 0) }));
}

function ofMemory(kind) {
  return (chosen, limits) => ({
    mib: [["held", "in use"], ["waiting", "waited for"]].flatMap(([name, way], rank) =>
      everywhere((chosen[kind] || {})[name], (mib) => ({ mib, way, rank }))),
    limit_mib: rows((limits[kind] || {}).limit, (limit_mib) => ({ limit_mib, way: "limit" })),
  });
}

function refused(endings) {
  const tops = new Map(), found = [];
  for (const [reason, series] of Object.entries(endings || {})) {
    if (reason === "ok") continue;
    for (const row of rows(series, (requests) => ({ reason, requests }))) {
      const bottom = tops.get(row.at_ms) || 0;
      tops.set(row.at_ms, bottom + row.requests);
      found.push({ ...row, bottom, top: bottom + row.requests });
    }
  }
  return found;
}

function arrived(endings) {
  const sums = new Map();
  for (const [bins, numbers] of Object.values(endings || {}))
    bins.forEach((bin, place) => sums.set(bin, (sums.get(bin) || 0) + numbers[place]));
  return everywhere([[...sums.keys()], [...sums.values()]], (requests) => ({ rate: requests * 1000 / choices.step_ms }));
}

// For each chart that can be filtered, by the column that tells its data from what stays: the rows of a choice.
const made = {
  "memory-heap": ofMemory("heap"),
  "memory-direct": ofMemory("direct"),
  "fullness": (chosen) => ({
    share: Object.entries(chosen.fullness || {}).flatMap(([kind, series]) => rows(series, (share) => ({ kind, share }))),
  }),
  "waits-over-time": (chosen) => ({
    seconds: Object.entries(chosen.waits || {}).flatMap(([quantile, series]) => rows(series, (seconds) => ({ quantile, seconds }))),
  }),
  "refusals-over-time": (chosen) => ({ requests: refused(chosen.endings) }),
  "storm-timeline": (chosen) => ({ rate: arrived(chosen.endings) }),
};

function specOf(holder, namespace, proxy) {
  const spec = JSON.parse(holder.textContent);
  if (namespace === "-1" && proxy === "-1") return spec;
  // A limit is one of all namespaces: beside a part of what it limits it would say nothing.
  const limits = namespace === "-1" ? choices.cells["-1 " + proxy] : {};
  const filled = made[holder.dataset.chart](choices.cells[namespace + " " + proxy] || {}, limits || {});
  for (const [name, before] of Object.entries(spec.datasets))
    for (const [column, after] of Object.entries(filled))
      if (before.length && column in before[0]) spec.datasets[name] = after;
  return spec;
}

function say(words, more) {
  document.getElementById("filtered").textContent = "Charts over time show " + words + more + ".";
}

function wordsOf(selects) {
  return selects.map((select) => select.selectedOptions[0].textContent).join(" at ");
}

function choose(selects) {
  const [namespace, proxy] = selects.map((select) => select.value), all = namespace === "-1" && proxy === "-1";
  const words = wordsOf(selects);
  say(words, all ? "" : ", by intervals of " + choices.interval + ". Texts, tables and other charts show all");
  for (const note of document.querySelectorAll(".of-all")) note.hidden = all;
  for (const holder of holders.filter((found) => "filtered" in found.dataset)) {
    const place = document.getElementById(holder.dataset.chart);
    place.dataset.all = place.dataset.all || place.getAttribute("aria-label");
    const title = place.closest("figure").querySelector("h3").textContent;
    place.setAttribute("aria-label", all ? place.dataset.all : title + " of " + words + ".");
    draw(holder, specOf(holder, namespace, proxy), namespace + " " + proxy);
  }
}

for (const holder of holders) draw(holder, JSON.parse(holder.textContent), "-1 -1");
if (choices) {
  const selects = ["namespace", "proxy"].map((what) => document.getElementById("filter-" + what));
  for (const select of selects) select.addEventListener("change", () => choose(selects));
  say(wordsOf(selects), "");
  document.getElementById("filters").hidden = false;
}
