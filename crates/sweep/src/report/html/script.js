"use strict";
(() => {
  const root = document.documentElement;
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  const printQuery = matchMedia("print");
  const json = (id) => JSON.parse(document.getElementById(id).textContent);
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkQuery.matches);

  // The figures' colours are written for a light page; these take their places on a dark one.
  const DARK = {
    "#0072B2": "#3D9FDB", "#D55E00": "#F0803C", "#009E73": "#2FC79B", "#CC79A7": "#E39CC4",
    "#E69F00": "#F5BE4A", "#56B4E9": "#9AD4F7", "#5C636B": "#A0A8B0",
  };
  const swap = (value) => {
    if (Array.isArray(value)) return value.map(swap);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, swap(v)]));
    }
    return typeof value === "string" && Object.hasOwn(DARK, value) ? DARK[value] : value;
  };

  const themed = (layout, dark) => {
    const [ink, muted, rule, paper] = dark
      ? ["#e7e6e2", "#a0a8b0", "#32383e", "#1d2125"] : ["#1c1e21", "#5c636b", "#e4e4de", "#fdfdfb"];
    const font = getComputedStyle(document.body).fontFamily;
    const result = {
      ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: font, size: 12, color: ink },
      hoverlabel: { bgcolor: paper, bordercolor: muted, font: { family: font, size: 12, color: ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
    };
    for (const axis of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      result[axis] = {
        ...layout[axis], gridcolor: rule, linecolor: muted, zerolinecolor: rule, tickcolor: rule,
        tickfont: { color: muted, size: 11 },
      };
      if (layout[axis].title) {
        result[axis].title = { ...layout[axis].title, font: { color: muted, size: 12 } };
      }
    }
    return result;
  };

  const plots = [...document.querySelectorAll("[data-plot]")].map((element) => ({
    element, ...json(element.dataset.plot),
  }));
  // On a touch screen a finger on a figure scrolls the page instead of zooming.
  const coarse = matchMedia("(pointer: coarse)").matches;
  const config = {
    displaylogo: false, responsive: true, showSendToCloud: false, displayModeBar: coarse ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };

  const draw = (dark, width) => plots.map(({ element, data, layout }) => {
    const sized = { ...themed(layout, dark), dragmode: coarse ? false : "zoom", autosize: !width };
    if (innerWidth < 700 && !width) {
      // A long legend above would push the figure out of sight.
      sized.legend = { ...sized.legend, yref: "container", y: 0, yanchor: "bottom", font: { size: 10 } };
    }
    if (width) {
      sized.width = width;
      sized.height = layout.height || (element.closest(".wide") ? 300 : 250);
    }
    return Plotly.react(element, dark ? swap(data) : data, sized, config);
  });

  if (window.Plotly) {
    const redraw = () => draw(isDark());
    redraw();
    darkQuery.addEventListener("change", redraw);
    // A figure is as wide as its place, also where that changes without the window's doing; on paper it has its own width.
    let onPaper = false;
    const widths = new WeakMap();
    const places = new ResizeObserver((changes) => changes.forEach(({ target, contentRect: { width } }) => {
      if (!onPaper && width > 0 && widths.get(target) !== width) Plotly.Plots.resize(target);
      widths.set(target, width);
    }));
    plots.forEach(({ element }) => places.observe(element));
    const toPrint = () => { onPaper = true; draw(false, 680); };
    addEventListener("beforeprint", toPrint);
    addEventListener("afterprint", () => { onPaper = false; redraw(); });
    printQuery.addEventListener("change", ({ matches }) => {
      if (matches) return toPrint();
      onPaper = false;
      return redraw();
    });
  }

  const toggle = document.getElementById("theme");
  toggle.hidden = false;
  const name = () => { toggle.textContent = isDark() ? "Light" : "Dark"; };
  name();
  darkQuery.addEventListener("change", name);
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
    if (window.Plotly) draw(isDark());
  });

  // Runs. A row is [position, point, pass, fate, MB/s, IOPS, p50, p99, p99.9, max (µs), deviations, MAD, codes].
  // A page of one run has no table of runs.
  if (!document.getElementById("runs-data")) return;
  const runs = json("runs-data");
  const body = document.querySelector("#runs-table tbody");
  const controls = document.getElementById("runs-tools");
  const [find, verdict] = ["runs-find", "runs-verdict"].map((id) => document.getElementById(id));
  const [previous, next] = ["runs-previous", "runs-next"].map((id) => document.getElementById(id));
  const status = document.getElementById("runs-status");
  const heads = [...document.querySelectorAll("#runs-table thead th")];
  const PAGE = 100;
  const state = { page: 0, column: 0, descending: false, rows: runs.rows };
  const point = new Map(runs.points.map(([id, number, label]) => [id, { number, label }]));
  const figure = (value, digits) => {
    const [whole, part] = value.toFixed(digits).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
    return part ? `${grouped}.${part}` : grouped;
  };
  // What each column shows, and what it sorts by.
  const columns = [
    { show: (r) => String(r[0]), key: (r) => r[0] },
    { show: (r) => point.get(r[1]).number, key: (r) => Number(point.get(r[1]).number) },
    { show: (r) => point.get(r[1]).label, key: (r) => point.get(r[1]).label },
    { show: (r) => String(r[2]), key: (r) => r[2] },
    { show: (r) => runs.fates[r[3]], key: (r) => r[3] },
    { show: (r) => figure(r[4], 1), key: (r) => r[4] },
    { show: (r) => figure(r[5], 0), key: (r) => r[5] },
    { show: (r) => figure(r[6], 1), key: (r) => r[6] },
    { show: (r) => figure(r[7], 1), key: (r) => r[7] },
    { show: (r) => figure(r[8], 1), key: (r) => r[8] },
    { show: (r) => figure(r[9], 1), key: (r) => r[9] },
    { show: (r) => (r[10] === null ? "" : r[10].toFixed(2).replace("-", "−")) + (r[11] ? " MAD" : ""), key: (r) => (r[10] === null ? -1 : Math.abs(r[10])) },
    { show: (r) => runs.codes[r[12]], key: (r) => runs.codes[r[12]] },
  ];
  const classes = ["", "aside", "rejected", "isvoid", "isvoid"];

  const render = () => {
    const pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const from = state.page * PAGE;
    const shown = state.rows.slice(from, from + PAGE);
    body.replaceChildren(...shown.map((row) => {
      const line = document.createElement("tr");
      line.className = classes[row[3]];
      columns.forEach((column, i) => {
        const cell = document.createElement("td");
        cell.className = heads[i].className;
        cell.textContent = column.show(row);
        line.append(cell);
      });
      return line;
    }));
    const total = state.rows.length;
    status.textContent = total
      ? `${figure(from + 1, 0)}–${figure(from + shown.length, 0)} of ${figure(total, 0)} runs` : "No run matches";
    previous.disabled = state.page === 0;
    next.disabled = state.page + 1 >= pages;
    previous.hidden = next.hidden = pages === 1;
  };
  const select = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = new Map(runs.points.map(([id, number, label]) => [id, `${number} ${label}`.toLowerCase()]));
    const codes = runs.codes.map((text) => text.toLowerCase());
    state.rows = runs.rows.filter((row) =>
      (verdict.value === "" || row[3] === Number(verdict.value))
      && words.every((word) => matching.get(row[1]).includes(word) || codes[row[12]].includes(word)));
    const { key } = columns[state.column];
    const sign = state.descending ? -1 : 1;
    state.rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return sign * (x < y ? -1 : x > y ? 1 : 0) || a[0] - b[0];
    });
    state.page = 0;
    render();
  };
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      state.descending = state.column === i && !state.descending;
      state.column = i;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      select();
    });
  });
  let pending;
  find.addEventListener("input", () => { clearTimeout(pending); pending = setTimeout(select, 120); });
  verdict.addEventListener("change", select);
  previous.addEventListener("click", () => { state.page -= 1; render(); });
  next.addEventListener("click", () => { state.page += 1; render(); });
  controls.hidden = false;
  render();
})();
