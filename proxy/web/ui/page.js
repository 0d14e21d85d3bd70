"use strict";
(() => {
  const EVERY_MILLIS = 2000, CONFIG_MILLIS = 30000, MIB = 1048576;
  const at = (id) => document.getElementById(id);
  let token = "", config = null;

  // Every text goes through textContent: names are chosen by clients.
  function make(name, attributes = {}, ...children) {
    const svg = ["svg", "path", "line", "title"].includes(name) && attributes.svg !== false;
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (key !== "svg") node.setAttribute(key, value);
    for (const child of children) node.append(child);
    return node;
  }
  const replace = (id, ...nodes) => at(id).replaceChildren(...nodes);

  function size(bytes) {
    if (bytes === null || bytes === undefined) return "?";
    if (bytes >= 1024 * MIB) return (bytes / MIB / 1024).toFixed(1) + " GiB";
    if (bytes >= MIB) return (bytes / MIB).toFixed(bytes < 10 * MIB ? 1 : 0) + " MiB";
    return bytes >= 1024 ? Math.round(bytes / 1024) + " KiB" : Math.round(bytes) + " B";
  }
  function span(seconds) {
    const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
    if (days) return `${days} d ${hours} h`;
    if (hours) return `${hours} h ${minutes} min`;
    return minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  }
  const millis = (value) => (value === null ? "no wait yet" : value >= 1000 ? span(value / 1000) : `${value.toFixed(0)} ms`);

  function gauge(label, used, limit, note, limitText) {
    const part = limit ? Math.min(1, used / limit) : 0;
    const level = part > 0.9 ? " bad" : part > 0.75 ? " warn" : "";
    const fill = make("div", { class: "fill" + level });
    fill.style.width = (100 * part).toFixed(1) + "%";
    const track = make("div", { class: "track", role: "meter", "aria-label": label, "aria-valuemin": 0,
      "aria-valuemax": limit || 0, "aria-valuenow": used || 0 }, fill);
    const text = `${size(used)} of ${limit ? size(limit) : "no limit"}${limitText ? ` (${limitText})` : ""}`;
    const node = make("div", { class: "gauge" },
      make("div", { class: "head" }, make("span", {}, label), make("span", {}, text)), track);
    if (note) node.append(make("div", { class: "small" }, note));
    return node;
  }

  function table(columns, rows, nothing) {
    if (!rows.length) return make("p", { class: "muted" }, nothing);
    const head = make("tr", {}, ...columns.map(([name, number]) => make("th", number ? { class: "number" } : {}, name)));
    const body = rows.map((row) => make("tr", {}, ...row.map((cell, index) => {
      const kind = cell && cell.kind ? cell.kind : columns[index][1] ? "number" : "";
      const attributes = { ...(kind ? { class: kind } : {}), "data-column": columns[index][0] };
      return make("td", attributes, String(cell && cell.kind ? cell.text : cell));
    })));
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  }

  function showMemory(state) {
    const memory = state.memory, limit = memory.container_limit_bytes ?? memory.machine_bytes;
    const owner = memory.container_limit_bytes === null ? "the machine" : "the container";
    const parts = Object.entries(state.budget_parts).sort((a, b) => b[1] - a[1]).slice(0, 4);
    const nodes = [
      gauge("Resident", memory.resident_bytes, limit, `peak ${size(memory.peak_bytes)}`, owner),
      gauge("Budget, if everything is full", memory.budget_bytes, limit,
        "largest: " + parts.map(([name, bytes]) => `${name} ${size(bytes)}`).join(", "), owner),
    ];
    for (const [name, label] of [["heap", "Lists being decoded (heap)"], ["direct", "Lists being sent (direct)"]]) {
      const limiter = state.limiters[name];
      nodes.push(gauge(label, limiter.held_bytes, limiter.limit_bytes,
        `${limiter.queue_size + limiter.growers_waiting} waiting; wait p50 ${millis(limiter.wait_p50_ms)}, ` +
        `p99 ${millis(limiter.wait_p99_ms)}; timed out ${limiter.timed_out}, queue full ${limiter.queue_full}`));
    }
    replace("memory", ...nodes);
  }

  function chart(label, values, write) {
    const most = Math.max(...values, 0), last = values.length ? values[values.length - 1] : 0;
    const svg = make("svg", { viewBox: "0 0 299 100", preserveAspectRatio: "none", role: "img",
      "aria-label": `${label}: now ${write(last)}, at most ${write(most)}` });
    svg.append(make("line", { class: "base", x1: 0, x2: 299, y1: 99, y2: 99 }));
    if (values.length > 1) {
      const first = 300 - values.length;
      const points = values.map((value, index) => `${first + index} ${(97 - (most ? 92 * value / most : 0)).toFixed(1)}`);
      svg.append(make("path", { class: "area", d: `M${first} 99 L${points.join(" L")} L299 99 Z` }));
      svg.append(make("path", { class: "path", d: "M" + points.join(" L") }));
    }
    return make("figure", {}, make("h3", {}, label), svg,
      make("figcaption", { class: "small" }, `now ${write(last)}, at most ${write(most)}`));
  }

  function showMinutes(minutes) {
    const perSecond = (value) => `${value.toFixed(value < 10 ? 1 : 0)}/s`, rate = (value) => size(value) + "/s";
    const count = (value) => value.toFixed(0);
    const all = [
      ["Lists answered", "lists", perSecond], ["Lists refused", "refused", perSecond], ["Other requests", "requests", perSecond],
      ["Relayed to clients", "relayed_to_client", rate], ["Relayed to brokers", "relayed_to_broker", rate],
      ["Waiting for memory", "waiting", count], ["Wait for heap memory, p99", "heap_wait_ms", millis],
      ["Wait for direct memory, p99", "direct_wait_ms", millis],
    ];
    replace("minutes", ...all.map(([label, name, write]) => chart(label, minutes[name] || [], write)));
  }

  function showTables(state) {
    replace("brokers", table([["Broker"], ["State"], ["Why"]], state.brokers.map((broker) => [
      { kind: "key", text: broker.broker }, { kind: broker.state, text: broker.state },
      broker.error ? `${broker.error}, for ${span(broker.seconds)}` : ""]), "no broker was found"));
    const holders = Object.entries(state.holders).flatMap(([name, rows]) => rows.map((row) => [name, row.owner, size(row.held_bytes)]));
    replace("holders", table([["Memory"], ["Holder"], ["Bytes", true]], holders, "nobody"));
    replace("waiters", table([["Memory"], ["Waits"], ["Namespace"], ["Asks", true], ["Since", true]], state.waiters.map((row) =>
      [row.line, row.owner, row.namespace, size(row.asked_bytes), span(row.waited_seconds)]), "nobody"));
    const now = state.proxy.time;
    replace("refusals", table([["When"], ["Client"], ["About"], ["Reason"], ["To change"]], state.refusals.slice(0, 20).map((row) =>
      [span(Math.max(0, now - row.time)) + " ago", row.client, row.subject, `${row.reason} (${row.stage})`,
        { kind: "key", text: row.change }]), "none"));
  }

  function showConfig() {
    if (config === null) return;
    const wanted = at("filter").value.trim().toLowerCase(), changed = at("changed").checked;
    const rows = Object.entries(config.keys)
      .filter(([name, entry]) => (!changed || entry.origin !== "default" || wanted) && name.toLowerCase().includes(wanted))
      .map(([name, entry]) => [{ kind: "key", text: name }, String(entry.value), entry.source,
        (entry.dynamic ? "live" : "restart") + ("pending_restart" in entry ? `; waits: ${entry.pending_restart}` : "")]);
    replace("config", table([["Key"], ["Value"], ["Source"], ["Changes by"]], rows, "no such key"));
  }

  function show(state) {
    const proxy = state.proxy, badge = at("state");
    const shown = proxy.accepting === false ? `${proxy.state}, paused` : proxy.state;
    badge.textContent = shown;
    badge.className = "badge" + (shown === "serving" ? "" : " warn");
    badge.hidden = false;
    document.title = `${shown}: Pulsar proxy ${proxy.cluster}`.trim();
    at("where").textContent = `${proxy.cluster ? proxy.cluster + ", " : ""}${proxy.address}, up ${span(proxy.uptime_seconds)}, ` +
      `process ${proxy.pid}, ${state.clients.lookup_mode} clients in lookup mode, ${state.clients.relayed} relayed, ` +
      `${state.clients.rejected} rejected` +
      (state.restart_needed.length ? `, restart needed for ${state.restart_needed.join(", ")}` : "");
    showMemory(state); showTables(state); showMinutes(state.minutes);
    at("updated").textContent = "Updated " + new Date(proxy.time * 1000).toLocaleTimeString() + ". ";
    at("details").hidden = false; at("notice").hidden = true; at("sign-in").hidden = true;
  }

  function tell(text) { at("notice").textContent = text; at("notice").hidden = false; }

  async function ask(path) {
    const headers = token ? { Authorization: "Bearer " + token } : {};
    const answer = await fetch(path, { headers, cache: "no-store", credentials: "same-origin" });
    if (answer.ok) return answer.json();
    const found = await answer.json().catch(() => ({ reason: `status ${answer.status}` }));
    const error = new Error(found.reason || `status ${answer.status}`);
    error.status = answer.status;
    throw error;
  }

  async function update() {
    if (document.hidden && !at("details").hidden) return EVERY_MILLIS;
    try {
      show(await ask("/ui/state"));
      return EVERY_MILLIS;
    } catch (error) {
      const denied = error.status === 401 || error.status === 403;
      if (denied) { at("details").hidden = true; at("sign-in").hidden = error.status !== 401 && !token; }
      tell(denied ? error.message : `No answer from the proxy: ${error.message}`);
      return denied ? 0 : 5 * EVERY_MILLIS;
    }
  }

  let running = false;
  async function follow() {
    if (running) return;
    running = true;
    const next = await update();
    running = false;
    document.documentElement.dataset.ready = "yes";
    if (next) setTimeout(follow, next);
  }
  async function followConfig() {
    try { config = await ask("/ui/config"); showConfig(); } catch (error) { /* `follow` tells why. */ }
    if (config) setTimeout(followConfig, CONFIG_MILLIS);
  }

  at("filter").addEventListener("input", showConfig);
  at("changed").addEventListener("change", showConfig);
  at("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    token = at("token").value.trim();
    follow(); followConfig();
  });
  follow(); followConfig();
})();
