"use strict";
(function () {
  const root = document.documentElement;
  const all = (selector, from) => Array.from((from || document).querySelectorAll(selector));

  /* Theme: the reader's choice, else the system's. Charts take their colours from the page. */
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("trainlab-theme"); } catch (error) { return null; } };
  const setTheme = (name) => { root.dataset.theme = name; };
  setTheme(stored() || (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (!stored()) setTheme(system.matches ? "dark" : "light"); });
  document.getElementById("theme").addEventListener("click", () => {
    const name = root.dataset.theme === "dark" ? "light" : "dark";
    setTheme(name);
    try { localStorage.setItem("trainlab-theme", name); } catch (error) { /* a page from disk may not store */ }
  });

  /* What sticks to the top must not cover a heading that one jumps to. */
  const bar = document.querySelector(".bar");
  const measureBar = () => {
    const sticks = getComputedStyle(bar).position === "sticky";
    root.style.setProperty("--bar-height", (sticks ? bar.offsetHeight : 0) + "px");
  };
  new ResizeObserver(measureBar).observe(bar);
  measureBar();

  /* Charts. `ast`: no text is run as code. */
  const views = new Map();
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const hidden = () => all("input[data-cell]").filter((box) => !box.checked).map((box) => box.dataset.cell);
  /* As many columns of names as there is room for: more would be cut off. */
  const widthOf = (name) => Array.from(name).reduce((sum, letter) => sum + (letter > "\u2e7f" ? 12 : 6.6), 34);
  /* A legend begins where the bars do, at the right of their names. */
  const widthOfBarNames = (spec) => {
    const y = spec.layer.map((layer) => layer.encoding.y).find((axis) => axis && Array.isArray(axis.sort));
    return y ? Math.min((y.axis || {}).labelLimit || 170, Math.max(...y.sort.map(String).map(widthOf)) - 34) + 10 : 0;
  };
  const narrowed = (spec, whole) => {
    const width = whole - widthOfBarNames(spec);
    spec.layer.map((layer) => layer.encoding.color).filter((hue) => hue && hue.legend && hue.scale.domain).forEach((hue) => {
      const widest = Math.max(...hue.scale.domain.map(widthOf));
      hue.legend.columns = Math.max(1, Math.min(hue.legend.columns, Math.floor(width / widest)));
    });
    return spec;
  };
  const waiting = new Set();
  /* The picture as a file: on white, with the settings that are shown. */
  const offer = (place) => {
    const caption = place.parentElement.querySelector("figcaption");
    if (caption.querySelector(".save")) return;
    const box = caption.appendChild(document.createElement("span"));
    box.className = "save";
    ["svg", "png"].forEach((kind) => {
      const button = box.appendChild(document.createElement("button"));
      Object.assign(button, { type: "button", textContent: kind.toUpperCase(), title: `${place.id.slice(6)}.${kind}` });
      button.addEventListener("click", () => {
        const view = views.get(place.id);
        const ground = view.background();
        view.background("#ffffff").toImageURL(kind, 2).then((address) => {
          view.background(ground);
          Object.assign(document.createElement("a"), { href: address, download: button.title }).click();
        });
      });
    });
  };
  const draw = (id) => {
    const place = document.getElementById(id);
    if (!place) return null;
    /* What is folded has no width yet: it is drawn once it is opened. */
    waiting[place.closest("details:not([open])") ? "add" : "delete"](id);
    if (waiting.has(id)) return null;
    place.style.minHeight = place.offsetHeight + "px";
    const options = { actions: false, renderer: "svg", ast: true, config: specs.config, tooltip: { theme: "custom" } };
    return window.trainlabEmbed(place, narrowed(structuredClone(specs.charts[id]), place.clientWidth), options).then((result) => {
      if (views.has(id)) views.get(id).finalize();
      views.set(id, result.view);
      place.style.minHeight = "";
      /* The place tells what is drawn; its hundreds of marks would only be in a listener's way. */
      all("svg", place).forEach((svg) => svg.setAttribute("aria-hidden", "true"));
      offer(place);
      if (hidden().length) return result.view.signal("hidden", hidden()).runAsync();
    });
  };
  /* Charts measure their texts, so the font must be there first; what draws them may still come. */
  const faces = ["12px 'Trainlab Latin'", "600 12px 'Trainlab Latin'", "12px 'Trainlab Report'"];
  const font = Promise.all(faces.map((face) => document.fonts.load(face, "a\u56fe"))).catch(() => []);
  const engine = document.getElementById("vega");
  const ready = !engine || window.trainlabEmbed ? font
    : new Promise((done) => engine.addEventListener("load", done)).then(() => font);

  document.addEventListener("toggle", (event) => {
    if (event.target.open) Array.from(waiting).forEach(draw);
  }, true);

  /* A link to something folded opens it. */
  const reveal = () => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!place) return;
    const own = place.querySelector(":scope > details");
    if (own) own.open = true;
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (place.classList.contains("extra")) place.closest(".tablebox").querySelector("button.unfold").click();
    place.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']")) setTimeout(reveal); });

  /* The contents mark the section that is read. */
  const inView = new Set();
  const watch = new IntersectionObserver((entries) => {
    entries.forEach((entry) => inView[entry.isIntersecting ? "add" : "delete"](entry.target.id));
    const now = all("section.part").find((section) => inView.has(section.id));
    all("nav.contents a").forEach((link) => {
      if (now && link.hash === "#" + now.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  }, { rootMargin: "-15% 0px -75% 0px" });

  /* Hide a cell everywhere. */
  const applyHidden = () => {
    const names = hidden();
    const gone = new Set(names);
    all("tr[data-cell]").forEach((row) => row.classList.toggle("cell-hidden", gone.has(row.dataset.cell)));
    views.forEach((view) => view.signal("hidden", names).runAsync());
  };
  document.addEventListener("change", (event) => { if (event.target.matches("input[data-cell]")) applyHidden(); });
  document.addEventListener("click", (event) => {
    if (!event.target.matches("button[data-all]")) return;
    all("input[data-cell]").forEach((box) => { box.checked = event.target.dataset.all === "yes"; });
    applyHidden();
  });

  /* Tables: sort, filter, unfold. */
  const keyOf = (row, column) => {
    const field = row.cells[column];
    return field.dataset.value === undefined ? field.textContent.trim() : Number(field.dataset.value);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, root.lang, { numeric: true });
  };
  const enlivenTable = (table) => {
    const body = table.tBodies[0];
    const headings = all("thead th", table);
    const shown = Number(table.dataset.shown || 0);
    const fold = () => {
      if (shown) Array.from(body.rows).forEach((row, place) => row.classList.toggle("extra", place >= shown));
    };
    headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
      const isNumber = heading.classList.contains("number");
      const now = heading.getAttribute("aria-sort");
      const next = now === "none" ? (isNumber ? "descending" : "ascending")
        : (now === "ascending" ? "descending" : "ascending");
      headings.forEach((other) => other.setAttribute("aria-sort", other === heading ? next : "none"));
      sort();
    }));
    const sort = () => {
      const column = headings.findIndex((heading) => heading.getAttribute("aria-sort") !== "none");
      if (column < 0) return;
      const sign = headings[column].getAttribute("aria-sort") === "ascending" ? 1 : -1;
      const rows = Array.from(body.rows).map((row, place) => [keyOf(row, column), place, row]);
      rows.sort((a, b) => sign * compare(a[0], b[0]) || a[1] - b[1]);
      if (rows.some((entry, place) => entry[1] !== place)) rows.forEach((entry) => body.appendChild(entry[2]));
      fold();
    };
    const box = table.closest(".tablebox");
    const unfold = box.querySelector("button.unfold");
    const setUnfolded = (open) => {
      table.classList.toggle("unfolded", open);
      if (unfold) { unfold.setAttribute("aria-expanded", String(open)); unfold.textContent = open ? unfold.dataset.fewer : unfold.dataset.more; }
    };
    if (unfold) unfold.addEventListener("click", () => setUnfolded(!table.classList.contains("unfolded")));
    const input = box.querySelector("input[type=search]");
    const filter = () => {
      const wanted = input ? input.value.trim().toLowerCase() : "";
      Array.from(body.rows).forEach((row) => {
        row.classList.toggle("filtered", wanted !== "" && !row.textContent.toLowerCase().includes(wanted));
      });
      setUnfolded(wanted !== "" || table.classList.contains("unfolded"));
    };
    if (input) input.addEventListener("input", () => { if (!input.value.trim()) setUnfolded(false); filter(); });
    /* A page that is served puts other rows in: they are filtered and sorted as those before. */
    table.settle = () => { sort(); filter(); };
  };

  /* A page that is served puts pieces in their places later. */
  const enliven = (area, ids) => {
    all("table.sortable", area).forEach(enlivenTable);
    (area.matches && area.matches("section.part") ? [area] : all("section.part", area)).forEach((one) => watch.observe(one));
    return ready.then(() => Promise.all(ids.map(draw))).then(() => { root.dataset.charts = "drawn"; });
  };
  window.trainlab = { all, enliven, applyHidden, specs };
  enliven(document, Object.keys(specs.charts)).then(reveal);
})();
