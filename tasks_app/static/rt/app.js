// Glue of the dashboard: ticking times, copy buttons, one submit per press, drafts, focus after
// swaps, and what a failed request says. Every page works without it. No words live here.
import { live } from './live.js';

const every = (selector, act, root = document) => root.querySelectorAll(selector).forEach(act);

// --- times ----------------------------------------------------------------------------------
const relative = new Intl.RelativeTimeFormat(document.documentElement.lang || 'en', { style: 'short', numeric: 'auto' });
const UNITS = [[86400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']];

function ago(date) {
  const gap = (date - Date.now()) / 1000;
  const size = Math.abs(gap);
  if (size > 7 * 86400) return date.toLocaleDateString(document.documentElement.lang || undefined);
  const [unit, name] = UNITS.find(([limit]) => size >= limit) || UNITS[3];
  return relative.format(Math.trunc(gap / unit), name);
}

function tickTimes() {
  every('time[data-ago]', (element) => {
    const date = new Date(element.dateTime);
    const text = ago(date);
    if (element.textContent !== text) element.textContent = text;
    if (!element.dataset.local) {
      element.dataset.local = 'yes';
      element.title = `${date.toLocaleString(document.documentElement.lang || undefined)} · ${element.dateTime}`;
    }
  });
}

// --- forms ----------------------------------------------------------------------------------
// The pressed button stays in the form data (it names the act), so it is only marked busy.
document.addEventListener('submit', (event) => {
  const form = event.target;
  if (form.dataset.busy) { event.preventDefault(); event.stopImmediatePropagation(); return; }
  if (form.method !== 'post') return;
  form.dataset.busy = 'yes';
  event.submitter?.setAttribute('aria-busy', 'true');
}, true);

function release(form) {
  if (!form) return;
  delete form.dataset.busy;
  every('[aria-busy]', (button) => button.removeAttribute('aria-busy'), form);
}
addEventListener('pageshow', () => every('form[data-busy]', release));

document.addEventListener('keydown', (event) => {
  const form = event.target.closest?.('form[data-ctrl-enter]');
  if (!form || event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
  const button = event.target.closest('button[type=submit]');
  if (button) { event.preventDefault(); form.requestSubmit(button); }
});

// --- drafts: a reload or a lost session keeps what was typed ----------------------------------
const draftKey = (form) => `draft:${form.dataset.draft}`;
function saveDraft(form) {
  const fields = [...form.elements].filter((f) => f.name && !f.dataset.secret && !/hidden|submit|file|password/.test(f.type));
  const values = fields.map((f) => [f.name, f.value, /checkbox|radio/.test(f.type) ? f.checked : null]);
  try { sessionStorage.setItem(draftKey(form), JSON.stringify(values)); } catch { /* storage is optional */ }
}
function loadDraft(form) {
  let values = null;
  try { values = JSON.parse(sessionStorage.getItem(draftKey(form))); } catch { return; }
  for (const [name, value, checked] of values || []) {
    for (const field of form.elements) {
      if (field.name !== name) continue;
      if (checked === null) { if (field.value === field.defaultValue) field.value = value; } else if (field.value === value) field.checked = checked;
    }
  }
}
document.addEventListener('input', (event) => {
  const form = event.target.form;
  if (form?.dataset.draft) saveDraft(form);
});
function drafts() {
  every('form[data-draft]', (form) => { if (!form.hasAttribute('data-fresh')) loadDraft(form); });
  every('[data-draft-done]', (mark) => sessionStorage.removeItem(`draft:${mark.dataset.draftDone}`));
}

// --- copy -------------------------------------------------------------------------------------
async function copy(button) {
  const text = button.dataset.copy;
  try { await navigator.clipboard.writeText(text); } catch {
    const area = document.createElement('textarea');
    area.value = text; area.className = 'vh';
    document.body.append(area); area.select(); document.execCommand('copy'); area.remove();
  }
  const status = document.getElementById('said');
  if (status) status.textContent = button.dataset.done;
}
document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-copy]');
  if (button) copy(button);
});

// --- htmx ---------------------------------------------------------------------------------------
function banner(kind, ctx) {
  const box = document.getElementById('trouble');
  if (!box) return;
  const id = ctx?.response?.headers?.get('X-Request-Id');
  box.querySelector('p').textContent = box.getAttribute(`data-t-${kind}`) + (id ? ` (${id})` : '');
  box.hidden = false;
}
const isWrite = (ctx) => ctx?.request?.method === 'POST';
document.addEventListener('htmx:after:swap', (event) => {
  tickTimes();
  if (isWrite(event.detail.ctx)) every('form[data-busy]', release);
  const alert = document.querySelector('[data-focus]');
  if (alert) { alert.removeAttribute('data-focus'); alert.focus(); }
  if (isWrite(event.detail.ctx)) {
    document.getElementById('trouble')?.setAttribute('hidden', '');
    document.body.dispatchEvent(new CustomEvent('rt:changed'));
  }
});
document.addEventListener('htmx:error', (event) => {
  if (!isWrite(event.detail.ctx)) return;
  every('form[data-busy]', release);
  banner('offline', event.detail.ctx);
});
document.addEventListener('htmx:response:error', (event) => {
  const { ctx } = event.detail;
  if (!isWrite(ctx)) return;
  every('form[data-busy]', release);
  if (ctx.response.status === 401) { every('form[data-draft]', saveDraft); location.reload(); }
  if (ctx.response.status >= 500) banner('server', ctx);
});

setInterval(tickTimes, 1000);
tickTimes();
drafts();
live();
