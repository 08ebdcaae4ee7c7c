'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const byID = (id) => document.getElementById(id);
  const pageRows = 50;

  // Data is added to the page as text, never as markup.
  const el = (tag, className, ...children) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    e.append(...children.filter((c) => c !== null && c !== undefined && c !== ''));
    return e;
  };

  const took = (s) => {
    if (s < 0) return '-' + took(-s);
    if (s > 0 && s < 10 && s !== Math.trunc(s)) return s.toFixed(1) + 's';
    const t = Math.round(s), two = (n) => String(n).padStart(2, '0');
    if (t < 60) return t + 's';
    if (t < 3600) return Math.floor(t / 60) + 'm ' + two(t % 60) + 's';
    if (t < 2 * 86400) return Math.floor(t / 3600) + 'h ' + two(Math.floor(t / 60) % 60) + 'm';
    return Math.floor(t / 86400) + 'd ' + Math.floor(t / 3600) % 24 + 'h';
  };

  // A moment is a number, a doubt, or a number and a doubt.
  const known = (m) => typeof m === 'number' ? m : null;
  const doubts = {
    Pending: 'not at present', Untold: 'time unknown', AfterOpening: 'after the opening: interrupted, or not waited for',
    Lost: 'held at the opening, not now', BeforeNode: 'before this Node was created', Again: 'not the first time', Joined: 'already open when the node became a member',
    NoGate: 'no gate is known to have held the node at its creation', Older: 'the node is older than the gate', Adopted: 'the node already carried the taint', Unread: 'unknown',
  };
  const describe = (m) => {
    if (typeof m === 'number') return took(m);
    if (typeof m === 'string') return doubts[m] || m;
    return m ? took(m[0]) + ', ' + (doubts[m[1]] || m[1]) : '';
  };

  // after returns a moment relative to another time of its row.
  const after = (m, at) => typeof m === 'number' ? m - at : Array.isArray(m) ? [m[0] - at, m[1]] : m;

  // Clocks may differ, so that the page may be from before an event.
  const since = (n, at) => Math.max(data.now - n.b - at, 0);

  // ended returns the end of a row, for the selected gate or, if none is selected, for all
  // gates. The bar starts at from: when the gate closed again, or at the node's creation. at is
  // the time from then to the end, and null if it is unknown: note is the reason.
  // least is the least time if the gate adopted the taint then.
  const ended = (n, gate) => {
    const least = (gates) => gates.reduce((most, g) => g.k && !g.e && Array.isArray(g.c) ? Math.max(most || 0, since(n, g.c[0])) : most, null);
    if (gate === null) return { least: n.u ? least(n.g || []) : null, from: 0, again: !!n.a, held: !!n.h, overdue: !!n.x, at: !n.h ? known(n.o) : n.u ? null : since(n, 0), note: describe(n.o) };
    const g = (n.g || []).find((g) => g.g === gate), created = n.d || 0, closed = known(g.c);
    if (g.k && !g.e) return { least: least([g]), from: closed === null ? created : closed, again: !!g.a, held: true, overdue: !!g.x, at: closed === null ? null : since(n, closed) };
    const opened = after(g.o, created);
    return { from: created, held: false, overdue: false, at: known(opened), note: g.k ? 'closed, PreferNoSchedule' : describe(opened) };
  };

  const bar = (track, className, from, to, scale) => {
    if (!(to > from) || from >= scale) return;
    const i = el('i', className);
    i.style.left = Math.max(from, 0) / scale * 100 + '%';
    i.style.width = (Math.min(to, scale) - Math.max(from, 0)) / scale * 100 + '%';
    track.append(i);
    if (to > scale * 1.001) track.append(el('i', 'cut'));
  };
  const mark = (track, at, scale) => {
    const i = el('i', 'mark');
    i.style.left = Math.min(Math.max(at, 0) / scale, 1) * 100 + '%';
    track.append(i);
  };

  const newTrack = () => { const t = el('span', 'track'); t.setAttribute('aria-hidden', 'true'); return t; };

  const rowOf = (n, gate, scale) => {
    const end = ended(n, gate), track = newTrack();
    const ready = known(n.r), to = end.at === null ? 0 : end.at;
    const startUp = end.again || ready === null ? 0 : Math.min(ready - end.from, to);
    bar(track, 'startup', 0, startUp, scale);
    bar(track, end.held ? 'closed' : 'waiting', startUp, to, scale);
    if (!end.held && n.f && n.f.b !== undefined && gate === null) bar(track, 'pods', to, n.f.b, scale);
    const value = el('span', 'took' + (end.held ? ' bad' : ''));
    if (end.held && end.at === null) value.append('held', el('small', '', (end.least === null ? 'time unknown' : 'for at least ' + took(end.least)) + (end.overdue ? ', overdue' : '')));
    else if (end.held) value.append('held ' + took(to), el('small', '', end.overdue ? 'overdue' : end.again ? 'closed again' : 'since its creation'));
    else if (end.at !== null) value.append(took(to), el('small', '', 'to open'));
    else value.append('–', el('small', '', end.note));
    const place = [data.pools[n.p], data.zones[n.z]].filter(Boolean).join(' · ');
    const summary = el('summary', '', el('span', 'who', el('span', 'name', n.n), place && el('span', 'place', place)), track, value);
    const details = el('details', '', summary);
    details.addEventListener('toggle', () => { if (details.open && details.children.length === 1) details.append(lanesOf(n)); });
    return el('li', '', details);
  };

  const lane = (label, track, value, note) => el('div', 'lane', el('span', 'label', label), track, el('span', 'value', value), note && el('span', 'note', note));

  const podNote = (p, message) => {
    if (!p) return '';
    const steps = [['created', p.c], ['bound', p.b], ['started', p.s]].filter((s) => s[1] !== undefined).map((s) => s[0] + ' ' + took(s[1]));
    if (message && message.includes(p.n)) return steps.join(', ');
    return 'pod ' + p.n + (steps.length ? ': ' + steps.join(', ') : '');
  };

  const signalLane = (name, s, awaited, now, scale) => {
    const track = newTrack(), held = known(s.h), pod = s.p;
    const started = pod && pod.s !== undefined && (held === null || pod.s <= held) ? pod.s : 0;
    if (held !== null) {
      bar(track, 'pending', 0, started, scale);
      bar(track, 'waiting', started, held, scale);
      mark(track, held, scale);
    } else if (awaited && s.t) {
      bar(track, 'pending', 0, started, scale);
      bar(track, 'closed', started, now, scale);
    }
    const note = [s.m, podNote(pod, s.m)].filter(Boolean).join(' · ');
    return lane(name, track, s.t === 'NotYet' && awaited ? 'waiting' : describe(s.h), note);
  };

  const lanesOf = (n) => {
    const now = since(n, 0), end = ended(n, null), box = el('div', 'lanes');
    const scale = Math.max(end.held ? now : end.at || 0, known(n.r) || 0, 1) * 1.08;
    const created = new Date(n.b * 1000).toISOString().replace('T', ' ').slice(0, 19) + ' UTC';
    box.append(el('p', 'quiet', (n.a ? 'Times are relative to when a gate closed again, ' : 'Times are relative to the node\'s creation, ') + created + '. The row ends at ' + took(scale) + '.'));
    const track = newTrack();
    if (!n.a && known(n.r) !== null) { bar(track, 'startup', 0, n.r, scale); mark(track, n.r, scale); }
    box.append(lane('node ready', track, describe(n.r)));
    for (const g of n.g || []) {
      const names = data.gates[g.g].s;
      const state = g.k ? 'closed' + (known(g.c) !== null ? ' for ' + took(since(n, g.c)) : Array.isArray(g.c) ? ' for at least ' + took(since(n, g.c[0])) : '') : 'opened: ' + describe(g.o);
      const more = [g.y, g.x && 'overdue', g.v && 'manual override', g.e && 'PreferNoSchedule'].filter(Boolean).join(', ');
      box.append(el('h3', '', data.gates[g.g].n + ' ', el('span', '', state + (more ? ' (' + more + ')' : ''))));
      if (g.w) box.append(el('p', 'quiet', g.w));
      (g.q || []).forEach((s, i) => box.append(signalLane(names[i] || '?', s, g.k && !g.i, now, scale)));
    }
    if (n.f) {
      const t = newTrack();
      bar(t, 'pods', known(n.o) || 0, n.f.b, scale);
      box.append(el('h3', '', 'First workload pod'), lane(n.f.n, t, n.f.b === undefined ? '' : 'bound ' + took(n.f.b), n.f.s === undefined ? '' : 'started ' + took(n.f.s)));
    }
    if ((n.g || []).some((g) => !g.q && data.gates[g.g].s.length)) box.append(el('p', 'quiet', 'This file contains signals of the slowest ' + data.full + ' nodes only; run: kubectl gate timeline ' + n.n));
    return box;
  };

  // scaleOf returns the time that a full bar represents. Bars that are far longer than the
  // others are cut off, so that the others stay visible.
  const scaleOf = (nodes, gate) => {
    const all = nodes.map((n) => ended(n, gate).at || 0).sort((a, b) => a - b);
    if (!all.length) return 1;
    const most = all[Math.floor((all.length - 1) * 0.8)], top = all[all.length - 1];
    return Math.max(top <= most * 2.5 ? top : most * 1.25, 1) * 1.05;
  };

  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000];
  const drawAxis = (scale) => {
    const step = steps.find((s) => scale / s <= (window.innerWidth < 720 ? 4 : 7)) || scale, inner = el('div');
    for (let t = 0; t < scale * 0.97; t += step) {
      const tick = el('span', '', took(t).replace(/ 00[sm]$/, ''));
      tick.style.left = t / scale * 100 + '%';
      inner.append(tick);
    }
    byID('axis').replaceChildren(inner);
  };

  let found = [], shown = 0, gate = null, scale = 1;
  const showMore = () => {
    const begin = shown;
    shown = Math.min(shown + pageRows, found.length);
    byID('rows').append(...found.slice(begin, shown).map((n) => rowOf(n, gate, scale)));
    byID('more').hidden = shown >= found.length;
    const count = (n) => n.toLocaleString('en');
    byID('found').textContent = data.nodes.length === 0 ? 'There are no nodes.' : found.length === 0 ? 'No nodes match.' :
      (found.length === data.nodes.length ? '' : count(found.length) + ' of ') + count(data.nodes.length) + (data.nodes.length === 1 ? ' node' : ' nodes') + (shown < found.length ? ', first ' + count(shown) + ' shown' : '');
  };
  const choice = (id) => byID(id).value === '' ? null : Number(byID(id).value);
  const draw = () => {
    const q = byID('q').value.trim().toLowerCase(), pool = choice('pool'), zone = choice('zone'), state = byID('state').value;
    gate = choice('gate');
    found = data.nodes.filter((n) => (!q || n.n.toLowerCase().includes(q)) && (pool === null || n.p === pool) && (zone === null || n.z === zone) &&
      (gate === null || (n.g || []).some((g) => g.g === gate)));
    const end = new Map(found.map((n) => [n, ended(n, gate)]));
    if (state) found = found.filter((n) => { const e = end.get(n); return state === 'held' ? e.held : state === 'overdue' ? e.overdue : !e.held; });
    if (gate !== null) {
      const rank = (e) => (e.held ? 1e12 : 0) + (e.at ?? e.least ?? -1);
      found.sort((a, b) => rank(end.get(b)) - rank(end.get(a)));
    }
    shown = 0;
    scale = scaleOf(found.slice(0, pageRows), gate);
    byID('rows').replaceChildren();
    drawAxis(scale);
    showMore();
  };

  const fill = (id, names, otherwise) => names.forEach((name, i) => {
    const o = el('option', '', name || otherwise);
    o.value = i;
    byID(id).append(o);
  });
  fill('gate', data.gates.map((g) => g.n), '');
  fill('pool', data.pools, 'no pool');
  fill('zone', data.zones, 'no zone');
  for (const id of ['gate', 'pool', 'zone']) byID(id).closest('label').hidden = byID(id).options.length < 3;

  let soon;
  byID('filter').addEventListener('input', (e) => { clearTimeout(soon); soon = setTimeout(draw, e.target.id === 'q' ? 120 : 0); });
  byID('filter').addEventListener('submit', (e) => e.preventDefault());
  byID('filter').addEventListener('reset', () => setTimeout(draw, 0));
  byID('more').addEventListener('click', () => {
    const next = shown;
    showMore();
    byID('rows').children[next].querySelector('summary').focus();
  });
  document.addEventListener('click', (e) => {
    const link = e.target.closest('a[href="#nodes"]');
    if (!link || !(Object.keys(link.dataset).length)) return;
    byID('filter').reset();
    if (link.dataset.state) byID('state').value = link.dataset.state;
    if (link.dataset.pool !== undefined) byID('pool').value = data.pools.indexOf(link.dataset.pool);
    if (link.dataset.zone !== undefined) byID('zone').value = data.zones.indexOf(link.dataset.zone);
    draw();
  });

  const theme = byID('theme'), themes = ['system', 'light', 'dark'];
  const setTheme = (name) => {
    if (name === 'system') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
    theme.textContent = 'Theme: ' + name;
  };
  let kept = null;
  try { kept = localStorage.getItem('nodegate-theme'); } catch { /* storage is not available */ }
  setTheme(themes.includes(kept) ? kept : 'system');
  theme.addEventListener('click', () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme || 'system') + 1) % themes.length];
    setTheme(next);
    try { localStorage.setItem('nodegate-theme', next); } catch { /* storage is not available */ }
  });

  for (const id of ['theme', 'filter', 'key']) byID(id).hidden = false;
  draw();
})();
