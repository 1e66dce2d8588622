"use strict";
(function () {
  const { all, enliven, applyHidden, specs } = window.trainlab;
  const body = document.body;
  const token = document.querySelector("meta[name=token]").content;
  const report = document.getElementById("report");
  const rows = document.getElementById("rows");
  const lost = document.getElementById("lost");
  const say = (message) => { lost.textContent = message; lost.hidden = !message; };

  /* Pieces take the places of those before them; what a reader has unfolded, ticked or focused stays so. */
  const known = new Map();
  const element = (html) => {
    const holder = document.createElement("template");
    holder.innerHTML = html.trim();
    return holder.content.firstElementChild;
  };
  const kept = (before, after) => {
    const open = all("details", before).map((one) => one.open);
    all("details", after).forEach((one, place) => { if (place < open.length) one.open = open[place]; });
    all("input[type=checkbox]", before).forEach((one, place) => {
      const other = all("input[type=checkbox]", after)[place];
      if (other) other.checked = one.checked;
    });
    all("table.sortable", before).forEach((one, place) => {
      const other = all("table.sortable", after)[place];
      if (!other) return;
      all("thead th", one).forEach((heading, column) => {
        const same = all("thead th", other)[column];
        if (same && heading.hasAttribute("aria-sort")) same.setAttribute("aria-sort", heading.getAttribute("aria-sort"));
      });
      other.classList.toggle("unfolded", one.classList.contains("unfolded"));
      const [box, its] = [one, other].map((table) => table.closest(".tablebox").querySelector("input[type=search]"));
      if (box && its) its.value = box.value;
    });
    all(".chart[id]", before).forEach((one) => {
      const other = after.querySelector("#" + CSS.escape(one.id));
      if (other) other.style.minHeight = one.offsetHeight + "px";
    });
  };
  const put = (part) => {
    const before = document.getElementById(part.id);
    const was = known.get(part.id);
    const isSame = before && was && was.html === part.html;
    known.set(part.id, part);
    Object.assign(specs.charts, part.charts);
    const charts = Object.keys(part.charts);
    if (isSame) return enliven(document.createElement("p"), charts);
    let after = before;
    if (before && "slot" in before.dataset) {
      after = before.cloneNode(false);
      after.innerHTML = part.html;
    } else {
      after = element(part.html);
    }
    const focused = before && before.contains(document.activeElement) ? document.activeElement : null;
    if (before) { kept(before, after); before.replaceWith(after); } else (rows || report).appendChild(after);
    const drawn = enliven(after, charts);
    all("table.sortable", after).forEach((table) => table.settle && table.settle());
    if (focused) {
      /* The same place in the new piece. */
      const tags = focused.localName;
      const number = all(tags, before).indexOf(focused);
      const again = (focused.id && document.getElementById(focused.id)) || all(tags, after)[number];
      if (again) again.focus({ preventScroll: true });
    }
    return drawn;
  };
  const state = () => document.querySelector("#status .progress")?.className;
  const apply = (message) => {
    const before = state();
    message.parts.forEach((part) => put(part));
    if (before !== state()) say("");
    /* What says that something is being read goes once it is there. */
    if (!message.order.includes("status")) document.getElementById("status")?.replaceChildren();
    /* Sections in their order; those that are no more go. */
    const wanted = new Set(message.order);
    known.forEach((part, id) => {
      if (wanted.has(id)) return;
      const gone = document.getElementById(id);
      if (gone && !("slot" in gone.dataset)) gone.remove();
      known.delete(id);
    });
    const home = rows || report;
    if (!rows || !all("th:not([aria-sort=none])[aria-sort]").length) {
      const placed = message.order.map((id) => document.getElementById(id))
        .filter((one) => one && one.parentElement === home);
      placed.forEach((one, place) => {
        const next = place ? placed[place - 1].nextElementSibling : placed[0];
        if (next !== one) home.insertBefore(one, next);
      });
    }
    if (rows) {
      listed();
      all("table.sortable").forEach((table) => table.settle());
    }
    if (message.parts.some((part) => part.id === "cells")) applyHidden();
    report.removeAttribute("aria-busy");
    const started = document.querySelector("[data-go]");
    if (started) location.replace(started.dataset.go);
  };
  /* A server that was ended and started again is found again. */
  let source = null;
  const listen = () => {
    if (source && source.readyState !== EventSource.CLOSED) return;
    source = new EventSource(body.dataset.feed + location.search);
    source.onmessage = (event) => apply(JSON.parse(event.data));
    source.onopen = () => { if (lost.textContent === body.dataset.lost) say(""); };
    source.onerror = () => {
      say(body.dataset.lost);
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
    };
  };
  /* A browser has six connections to one host: a page that nobody sees takes none. */
  const heed = () => { if (document.hidden) { if (source) source.close(); } else listen(); };

  const post = (path, value) => fetch(path + location.search, {
    method: "POST", body: JSON.stringify(value), headers: { "X-Token": token, "Content-Type": "application/json" },
  }).then((answer) => answer.json()).catch(() => ({ error: body.dataset.failed }));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-post]");
    if (!button || (button.dataset.sure && !window.confirm(button.dataset.sure))) return;
    button.disabled = true;
    if (button.dataset.doing) say(button.dataset.doing);
    post(button.dataset.post, JSON.parse(button.dataset.body || "{}")).then((answer) => {
      button.disabled = false;
      say(answer.error || answer.text || "");
      if (answer.go) location.assign(answer.go);
    });
  });

  /* The list: ticked runs are compared. */
  const compare = document.getElementById("compare");
  const ticked = () => all("#rows input[name=run]:checked").map((box) => box.value);
  const listed = () => {
    document.getElementById("none").hidden = rows.rows.length > 0;
    if (compare) compare.disabled = ticked().length < 2 || ticked().length > 6;
  };
  if (compare) {
    document.addEventListener("change", (event) => { if (event.target.name === "run") listed(); });
    compare.addEventListener("click", () => {
      location.assign("/compare?" + ticked().map((id) => "run=" + id).join("&"));
    });
  }

  /* The form: the plan of what is filled in, then the start. */
  const form = document.getElementById("study");
  if (form) {
    const place = document.getElementById("plan");
    const value = () => Object.fromEntries(new FormData(form));
    let number = 0;
    let timer = 0;
    /* What was typed is there again after a change of language, or a start that was refused. */
    const kept = sessionStorage.getItem("trainlab-form");
    Object.entries(kept ? JSON.parse(kept) : {}).forEach(([name, text]) => {
      const field = form.elements[name];
      if (field && field.type === "checkbox") field.checked = true; else if (field) field.value = text;
    });
    form.addEventListener("input", () => sessionStorage.setItem("trainlab-form", JSON.stringify(value())));
    const plan = () => {
      const own = ++number;
      place.setAttribute("aria-busy", "true");
      post("/plan", value()).then((answer) => {
        if (own !== number) return;
        place.removeAttribute("aria-busy");
        place.textContent = answer.error || answer.text;
        place.classList.toggle("failure", Boolean(answer.error));
        form.querySelector("button[type=submit]").disabled = Boolean(answer.error);
      });
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(plan, 500); });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const button = form.querySelector("button[type=submit]");
      button.disabled = true;
      post("/start", value()).then((answer) => {
        button.disabled = false;
        if (answer.go) location.assign(answer.go); else say(answer.error || "");
      });
    });
    plan();
  }

  if (rows) listed();
  if (body.dataset.feed) {
    document.addEventListener("visibilitychange", heed);
    window.addEventListener("pagehide", () => { if (source) source.close(); });
    window.addEventListener("pageshow", heed);
    heed();
  }
})();
