// What can be checked of a page's accessibility without looking at it. Evaluates
// to a list, in JSON, of what is wrong.
(() => {
  const wrong = [];
  const say = (e, what) => wrong.push(what + ': ' + e.tagName + ' ' + (e.id || e.className || '') + ' "' + e.textContent.trim().slice(0, 40) + '"');
  const visible = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length > 0;

  // Contrast of text, by WCAG 2 (AA).
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (e) => {
    const layers = [];
    for (let p = e; p; p = p.parentElement) layers.push(rgba(getComputedStyle(p).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
  const done = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || done.has(e) || e.closest('script, style, noscript, option') || !visible(e)) continue;
    done.add(e);
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const below = behind(e), is = contrast(over(rgba(style.color), below), below);
    const large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
    if (is < (large ? 3 : 4.5)) say(e, 'contrast of ' + is.toFixed(2));
    if (size < 12) say(e, 'text of ' + size + ' pixels');
  }

  // Headings follow each other, and there is one of the first rank.
  const ranks = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(visible);
  if (ranks.filter((h) => h.tagName === 'H1').length !== 1) wrong.push('there is not exactly one heading of the first rank');
  ranks.forEach((h, i) => { if (i && h.tagName[1] - ranks[i - 1].tagName[1] > 1) say(h, 'heading skips a rank'); });
  ranks.forEach((h) => { if (!h.textContent.trim()) say(h, 'heading without a text'); });

  // Landmarks, language and title.
  if (document.querySelectorAll('main').length !== 1 || !document.querySelector('header')) wrong.push('landmarks are missing');
  if (!document.documentElement.lang || !document.title) wrong.push('language or title are missing');
  if (!document.querySelector('meta[name=viewport]') || /user-scalable=no|maximum-scale/.test(document.querySelector('meta[name=viewport]').content)) wrong.push('the page cannot be zoomed');

  // Whatever can be used has a name, and can be hit with a finger.
  document.querySelectorAll('button, a[href], input, select, summary, [tabindex="0"]').forEach((e) => {
    if (!visible(e)) return;
    const name = e.getAttribute('aria-label') || (e.labels && [...e.labels].map((l) => l.firstChild.textContent).join(' ')) || (e.matches('input, select') ? '' : e.textContent);
    if (!name || !name.trim()) say(e, 'no name');
    const box = e.getBoundingClientRect();
    if (e.matches('button, input, select, summary') && box.height < 24) say(e, 'only ' + box.height + ' pixels high');
  });
  document.querySelectorAll('section, [role=region], article, form').forEach((e) => {
    const by = e.getAttribute('aria-labelledby');
    if (!(e.getAttribute('aria-label') || by && document.getElementById(by))) say(e, 'no label');
  });

  // Tables have headers, identifiers are unique, and pictures are named or hidden.
  document.querySelectorAll('table').forEach((t) => {
    if ([...t.querySelectorAll('th')].some((h) => !h.scope)) say(t, 'table header without a scope');
    if (!t.querySelector('thead th[scope=col]')) say(t, 'table without headers');
  });
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push('two elements are called ' + id));
  document.querySelectorAll('svg, img, canvas').forEach((e) => { if (!e.closest('[aria-hidden=true]') && !e.getAttribute('aria-label') && !e.alt) say(e, 'picture without a name'); });
  return JSON.stringify(wrong);
})()
