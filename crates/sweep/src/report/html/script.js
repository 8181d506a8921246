"use strict";
(() => {
  const root = document.documentElement;
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  const json = (id) => JSON.parse(document.getElementById(id).textContent);
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkQuery.matches);

  const toggle = document.getElementById("theme");
  toggle.hidden = false;
  const name = () => { toggle.textContent = isDark() ? "Light" : "Dark"; };
  name();
  darkQuery.addEventListener("change", name);
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });

  // Runs. A row is [position, point, pass, fate, MB/s, IOPS, p50, p99, p99_9, max (µs), deviations, MAD, codes].
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
    // A percentile that the count of requests does not carry.
    if (value === null) return "–";
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
        if (cell.className === "codes") {
          // Lines break between codes, and not at the hyphens in one.
          for (const code of column.show(row).split(" ")) {
            const span = document.createElement("span");
            span.textContent = code;
            cell.append(span, " ");
          }
        } else {
          cell.textContent = column.show(row);
        }
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
