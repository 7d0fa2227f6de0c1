'use strict';
// The page is whole without this: a cursor in the timeline, one frame of the flame graph, colours.
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId('timeline-data').textContent);
  const picture = byId('timeline');
  const left = Number(picture.dataset.left);
  const width = Number(picture.dataset.width);
  let at = -1;

  const show = (index) => {
    if (data.points.length === 0) return;
    at = Math.max(0, Math.min(index, data.points.length - 1));
    const [time, words] = data.points[at];
    const x = left + Math.min(time / Math.max(data.span, 1), 1) * (width - left);
    byId('cursor').setAttribute('d', `M${x} 0V${picture.dataset.bottom}`);
    byId('timeline-now').textContent = words;
  };
  // The last point that is not later.
  const pointAt = (time) => {
    let found = 0;
    data.points.forEach(([start], index) => { if (start <= time) found = index; });
    return found;
  };
  const event = (step) => {
    const now = at < 0 ? -1 : data.points[at][0];
    const later = data.events.filter((time) => (step > 0 ? time > now : pointAt(time) < at));
    if (later.length > 0) show(pointAt(step > 0 ? later[0] : later[later.length - 1]));
  };
  picture.addEventListener('keydown', (key) => {
    const actions = {
      ArrowLeft: () => show(at - 1), ArrowRight: () => show(at + 1), Home: () => show(0),
      End: () => show(data.points.length - 1), n: () => event(1), p: () => event(-1),
    };
    if (!(key.key in actions)) return;
    actions[key.key]();
    key.preventDefault();
  });
  picture.addEventListener('pointermove', (pointer) => {
    const box = picture.getBoundingClientRect();
    const x = (pointer.clientX - box.left) / box.width * width;
    show(pointAt((x - left) / (width - left) * data.span));
  });

  const flame = byId('flame');
  const frames = [...flame.querySelectorAll('g')];
  const place = (frame) => ({ x: Number(frame.dataset.x), w: Number(frame.dataset.w), l: Number(frame.dataset.l) });
  const zoom = (frame) => {
    const { x, w, l } = frame ? place(frame) : { x: 0, w: width, l: 0 };
    for (const other of frames) {
      const own = place(other);
      const inside = own.l >= l ? own.x >= x - 0.01 && own.x + own.w <= x + w + 0.01 : own.x <= x + 0.01 && own.x + own.w >= x + w - 0.01;
      other.style.display = inside ? '' : 'none';
      const scale = width / w;
      const shown = own.l >= l ? { x: (own.x - x) * scale, w: own.w * scale } : { x: 0, w: width };
      const [box, words] = [other.querySelector('rect'), other.querySelector('text')];
      box.setAttribute('x', shown.x);
      box.setAttribute('width', shown.w);
      if (words) words.setAttribute('x', shown.x + 4);
    }
  };
  const focus = (frame) => {
    if (!frame) return;
    frames.forEach((other) => { other.tabIndex = -1; });
    frame.tabIndex = 0;
    frame.focus();
  };
  const beside = (frame, level, step) => {
    const shown = frames.filter((other) => place(other).l === level && other.style.display !== 'none');
    const own = place(frame);
    if (step === 0) return shown.find((other) => {
      const it = place(other);
      return level < own.l ? it.x <= own.x + 0.01 && it.x + it.w >= own.x + own.w - 0.01 : it.x >= own.x - 0.01 && it.x + it.w <= own.x + own.w + 0.01;
    });
    return shown[shown.indexOf(frame) + step];
  };
  flame.addEventListener('keydown', (key) => {
    const frame = key.target.closest('g');
    if (!frame) return;
    const level = place(frame).l;
    const actions = {
      ArrowDown: () => focus(beside(frame, level + 1, 0)), ArrowUp: () => focus(beside(frame, level - 1, 0)),
      ArrowLeft: () => focus(beside(frame, level, -1)), ArrowRight: () => focus(beside(frame, level, 1)),
      Enter: () => zoom(frame), Escape: () => zoom(null),
    };
    if (!(key.key in actions)) return;
    actions[key.key]();
    key.preventDefault();
  });
  flame.addEventListener('click', (click) => {
    const frame = click.target.closest('g');
    if (frame) { zoom(place(frame).l === 0 ? null : frame); focus(frame); }
  });

  const theme = byId('theme');
  theme.hidden = false;
  theme.addEventListener('click', () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
  });
})();
