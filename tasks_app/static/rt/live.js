// Keeps one page current: one EventSource, snapshots by htmx, and no trust in silence.
// The page is never built from events: any event asks for the live fragment.
// Words come from data-t-* attributes of the indicator; this file holds none.

const EVENTS = ['task.snapshot', 'status', 'progress', 'log', 'artifact', 'message', 'values', 'checkpoint', 'steering.applied', 'budget',
  'repaired', 'input_required', 'child', 'model_error', 'delivery', 'terminal', 'task', 'inbox'];
const BACKOFF = [1, 2, 5, 10, 30];
const seconds = (n) => n * 1000;

// A form is in use with the focus in it, text written, or an answer that a person has not read away.
// What says that a command was accepted is no such answer: it is over when the command is.
function inUse(form) {
  const focus = document.activeElement;
  return Boolean(form) && (form.querySelector('#conflict, #problem') !== null
    || (form.contains(focus) && !focus.matches('[data-said], h2'))
    || [...form.querySelectorAll('textarea')].some((f) => f.value.trim() !== '')
    || [...form.querySelectorAll('input:not([type=hidden])')].some((f) => f.value !== f.defaultValue));
}

// What a person has put into a form, to be put into the next one in its place.
function written(form) {
  const focus = document.activeElement;
  const fields = [...form.querySelectorAll('textarea, input:not([type=hidden])')].map((f) => [f.name, f.value]);
  const at = form.contains(focus) ? { name: focus.name, start: focus.selectionStart, end: focus.selectionEnd } : null;
  return { fields, at };
}

function rewrite(form, { fields, at }) {
  const named = (name) => name && [...form.elements].find((f) => f.name === name && f.type !== 'hidden');
  for (const [name, value] of fields) { const field = named(name); if (field) field.value = value; }
  if (!at) return;
  const field = named(at.name) || form.querySelector('h2');
  field?.focus();
  if (at.start != null && field?.setSelectionRange && field.type !== 'number') field.setSelectionRange(at.start, at.end);
}

class Live {
  constructor(page, indicator) {
    this.page = page;
    this.indicator = indicator;
    this.counted = page.hasAttribute('data-seq');
    this.seen = Number(page.dataset.seq || 0);      // seq of the newest snapshot on screen
    this.heard = this.seen;                         // seq of the newest event heard
    this.asked = 0; this.tries = 0; this.failures = 0; this.lastEvent = Date.now();
    this.minGap = Number(page.dataset.gapMs || 500);
    this.state = '';
  }

  start() {
    document.body.addEventListener('htmx:after:swap', () => this.swapped());
    // Somebody began to write after the fresh form was asked for: it is not put in their way.
    document.body.addEventListener('htmx:before:swap', (e) => {
      const panel = e.detail.ctx.sourceElement;
      if (panel?.id !== 'steering') return;
      const form = panel.querySelector('#steer');
      if (inUse(form) && !this.isOwn(form)) e.preventDefault();
      else if (form) this.kept = written(form);
    });
    document.body.addEventListener('htmx:after:request', (e) => this.answered(e.detail.ctx));
    document.addEventListener('visibilitychange', () => this.visibility());
    addEventListener('pagehide', () => this.close());
    addEventListener('pageshow', (e) => { if (e.persisted) this.open(); });
    setInterval(() => this.tick(), 1000);
    if (this.finished()) this.show('done'); else this.open();
  }

  // --- the stream -------------------------------------------------------------------------
  open() {
    this.close();
    if (this.state === 'out' || this.finished()) return;
    clearTimeout(this.retryTimer);
    const source = new EventSource(this.page.dataset.stream);
    this.source = source;
    source.addEventListener('stream-open', () => this.opened());
    for (const name of ['resync', 'stream-reset']) source.addEventListener(name, () => this.refresh());
    source.addEventListener('reconnect', () => { this.close(); this.open(); });
    source.addEventListener('stream-error', () => this.signedOut());
    for (const name of EVENTS) source.addEventListener(name, (e) => this.heardEvent(e));
    source.onerror = () => this.broken(source);
  }

  close() { this.source?.close(); this.source = null; }

  opened() {
    this.failures = 0; this.lastEvent = Date.now();
    this.show('live');
    this.refresh();
  }

  broken(source) {
    if (source !== this.source) return;
    if (this.state !== 'down') this.show('retry');
    if (source.readyState !== EventSource.CLOSED) return;   // the browser retries by itself
    const wait = BACKOFF[Math.min(this.failures++, BACKOFF.length - 1)];
    clearTimeout(this.retryTimer);
    this.retryTimer = setTimeout(() => this.open(), seconds(wait));
  }

  heardEvent(event) {
    this.lastEvent = Date.now();
    const seq = readSeq(event.data);
    if (seq === null || !this.counted) { this.refresh(); return; }
    if (seq <= this.heard) return;
    this.heard = seq;
    if (seq > this.seen) this.refresh();
  }

  signedOut() { this.close(); clearTimeout(this.retryTimer); this.show('out'); }

  // --- the snapshot -----------------------------------------------------------------------
  refresh() {
    const wait = this.asked + this.minGap - Date.now();
    if (wait > 0) {
      this.pending ??= setTimeout(() => { this.pending = null; this.refresh(); }, wait);
      return;
    }
    this.asked = Date.now();
    document.body.dispatchEvent(new CustomEvent('rt:changed'));
  }

  answered(ctx) {
    if (ctx.sourceElement !== this.page) return;
    if (ctx.response.status === 401) this.signedOut();
  }

  swapped() {
    const head = document.getElementById('head');
    if (!this.counted || !head) return;
    this.rewrite();
    this.seen = Math.max(this.seen, Number(head.dataset.seq || 0));
    this.follow(head);
    if (this.finished()) { this.close(); this.show('done'); return; }
    if (this.seen >= this.heard) { this.tries = 0; return; }
    if (this.tries++ < 5) this.refresh();          // events go out after the commit: rare
  }

  // The task moved on: the steering form follows while nobody uses it, else a note says so.
  follow(head) {
    const panel = document.getElementById('steering');
    const form = panel?.querySelector('#steer');
    if (!form || Number(form.dataset.version) >= Number(head.dataset.version)) return;
    const used = inUse(form) && !this.isOwn(form);
    const note = form.querySelector('.stale');
    if (used && note) {
      const text = note.dataset.t.replace('{version}', head.dataset.version).replace('{who}', head.dataset.moved || '');
      if (note.textContent !== text) note.textContent = text;
      note.hidden = false;
    } else if (!used) panel.dispatchEvent(new CustomEvent('rt:steer'));
  }

  // Since the form was made only its own reader has moved the task, by a command.
  isOwn(form) {
    const from = document.getElementById('head')?.dataset.ownFrom;
    return Boolean(from) && Number(form.dataset.version) >= Number(from)
      && form.querySelector('#conflict, #problem') === null;
  }

  rewrite() {
    const form = document.querySelector('#steering #steer');
    if (this.kept && form) rewrite(form, this.kept);
    this.kept = null;
  }

  // --- once a second: probe, poll, give up --------------------------------------------------
  tick() {
    const now = Date.now();
    if (document.hidden || this.state === 'out' || this.state === 'done') return;
    if (this.state === 'live' && now - this.lastEvent > seconds(30)) this.probe();
    if (this.state === 'retry' && now - this.since > seconds(10)) this.show('down');
    if (this.state !== 'live' && now - this.asked > seconds(10)) this.refresh();
  }

  probe() {
    this.lastEvent = Date.now();
    const before = this.heard;
    this.refresh();
    setTimeout(() => {
      const deaf = this.counted && this.seen > before && this.heard < this.seen;
      if (deaf && this.state === 'live') { this.heard = this.seen; this.show('stale'); this.open(); }
    }, seconds(3));
  }

  visibility() {
    clearTimeout(this.hideTimer);
    if (document.hidden) {
      this.hideTimer = setTimeout(() => { this.close(); if (this.state !== 'done') this.show('idle'); }, seconds(5));
    } else if (this.state === 'idle') { this.open(); this.refresh(); }
  }

  finished() { return document.getElementById('head')?.dataset.terminal === 'yes'; }

  show(state) {
    if (state === this.state) return;
    this.state = state;
    this.since = Date.now();
    this.page.dataset.live = state;
    if (!this.indicator) return;
    this.indicator.dataset.state = state;
    const text = this.indicator.getAttribute(`data-t-${state}`) || '';
    this.indicator.textContent = text.replace('{time}', new Date().toLocaleTimeString());
  }
}

function readSeq(data) {
  try {
    const seq = JSON.parse(data).seq;
    return Number.isInteger(seq) ? seq : null;
  } catch { return null; }
}

export function live() {
  const page = document.querySelector('[data-stream]');
  if (page && 'EventSource' in window) new Live(page, document.getElementById('stream')).start();
}
