"use strict";
for (const holder of document.querySelectorAll("script[data-chart]")) {
  const place = document.getElementById(holder.dataset.chart);
  vegaEmbed(place, JSON.parse(holder.textContent), { actions: false, renderer: "svg", tooltip: { theme: "custom" } })
    .then(() => { place.dataset.drawn = "yes"; })
    .catch((error) => { place.textContent = "This chart could not be drawn: " + error.message; console.error(error); });
}
