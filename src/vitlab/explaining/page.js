"use strict";
// Draws what the page holds. Every number that is shown names where it is from: data-of="array/index/…".
const DATA = JSON.parse(document.getElementById("data").textContent);
const F = DATA.facts, P = F.patch_size, [GH, GW] = DATA.grid, PREFIX = F.prefix, T = F.tokens, ROWS = DATA.rows;
const names = [...DATA.prefix, ...Array.from({length: F.patches}, (_, n) => `row ${Math.floor(n / GW) + 1}, column ${n % GW + 1}`)];
const state = {image: 0, query: 0, key: 0, layer: F.layers - 1, head: 0, dim: 0, wide: 0, filter: 0, size: 1, word: 0, deep: 0};
const drawers = [];

// -- numbers

const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
class Packed {
  constructor({shape, steps, data}) {
    Object.assign(this, {shape, steps, whole: new Int16Array(bytes(data).buffer)});
    this.row = this.whole.length / steps.length;
  }
  at(...index) {
    let place = 0;
    index.forEach((i, n) => { place = place * this.shape[n] + i; });
    return this.whole[place] * this.steps[Math.floor(place / this.row)];
  }
}
const unpack = arrays => Object.fromEntries(Object.entries(arrays).map(([name, one]) => [name, new Packed(one)]));
const MODEL = unpack(DATA.arrays);
for (const image of DATA.images) {
  image.arrays = unpack(image.arrays);
  image.pixels = bytes(image.pixels);
}
const now = () => DATA.images[state.image];
const A = (name, ...index) => now().arrays[name].at(...index);
const has = name => name in now().arrays;
const row = token => ROWS.indexOf(token);
const vector = (name, length, ...index) => Array.from({length}, (_, d) => A(name, ...index, d));
const range = count => Array.from({length: count}, (_, n) => n);
const range0 = values => Math.max(...values.map(Math.abs), 1e-12);
const scores = (l = state.layer, h = state.head) => range(T).map(j => A("score", l, h, row(state.query), j));
function shares(l = state.layer, h = state.head) {
  const s = scores(l, h), top = Math.max(...s), e = s.map(x => Math.exp(x - top)), sum = e.reduce((a, b) => a + b);
  return e.map(x => x / sum);
}
const escaped = text => text.replace(/[&<>"]/g, letter => `&#${letter.charCodeAt(0)};`);
const minus = text => text.replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
const number = (of, value, text) => `<data class="n" data-of="${of}" value="${value}">${minus(text)}</data>`;
const n = (of, value, digits = 2) => number(of, value, value.toFixed(digits));
const percent = (of, value, digits = 1) => {
  const text = (100 * value).toFixed(digits);
  const least = 10 ** -digits, few = digits && value > 0 && !Number(text), most = digits && value < 1 && Number(text) === 100;
  return (few ? "< " + number(of, value, least.toFixed(digits)) : most ? "> " + number(of, value, (100 - least).toFixed(digits)) : number(of, value, text)) + " %";
};
const whole = (of, value) => number(of, value, value.toLocaleString("en"));
const short = (of, value) => {
  const unit = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]].find(([size]) => value >= size);
  return unit ? number(of, value, (value / unit[0]).toPrecision(3)) + ` <span data-unit="${unit[0]}">${unit[1]}</span>` : whole(of, value);
};
const luminance = colour => [0.2126, 0.7152, 0.0722].reduce((sum, share, c) => sum + share * (colour[c] / 255) ** 2.2, 0);  // WCAG 2
const label = text => `<span class="label">${escaped(text)}</span>`;
const place = (name, ...index) => `${state.image}/${name}/${index.join("/")}`;
const here = (name, ...index) => place(name, state.layer, state.head, ...index);

// -- colours and pictures

const triple = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(/\s+/).map(Number);
let ZERO, PLUS, MINUS;
const readColours = () => { [ZERO, PLUS, MINUS] = ["--zero", "--plus", "--minus"].map(triple); };
const blend = x => {  // from -1 to 1
  const end = x > 0 ? PLUS : MINUS, a = Math.min(1, Math.abs(x)) ** 0.8;
  return ZERO.map((zero, i) => Math.round(zero + (end[i] - zero) * a));
};
function paint(canvas, width, height, colour) {  // colour(x, y) -> [r, g, b]
  Object.assign(canvas, {width, height});
  const context = canvas.getContext("2d"), data = context.createImageData(width, height);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) data.data.set([...colour(x, y), 255], 4 * (y * width + x));
  context.putImageData(data, 0, 0);
}
const pixel = (image, c, y, x) => image.pixels[((F.channels === 1 ? 0 : c) * F.height + y) * F.width + x];
const colours = (image, y, x) => [0, 1, 2].map(c => pixel(image, Math.min(c, F.channels - 1), y, x));
const paintImage = (canvas, image) => paint(canvas, F.width, F.height, (x, y) => colours(image, y, x));
function paintHeat(canvas, values, {signed = false, gap = false} = {}) {  // values: N, or null
  const S = Math.max(P, Math.ceil(320 / GW / P) * P);
  const picture = document.createElement("canvas");
  paintImage(picture, now());
  Object.assign(canvas, {width: GW * S, height: GH * S});
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  const edge = gap ? Math.max(2, S * 0.06) : 1, top = values ? range0(values) : 1;
  for (let p = 0; p < F.patches; p++) {
    const x = p % GW, y = Math.floor(p / GW), to = [x * S + edge, y * S + edge, S - 2 * edge, S - 2 * edge];
    context.drawImage(picture, x * P, y * P, P, P, ...to);
    if (!values) continue;
    const a = Math.min(1, Math.abs(values[p]) / top), [r, g, b] = signed && values[p] < 0 ? MINUS : PLUS;
    context.fillStyle = `rgb(20 20 24 / ${0.62 * (1 - a)})`;
    context.fillRect(...to);
    context.fillStyle = `rgb(${r} ${g} ${b} / ${0.72 * a})`;
    context.fillRect(...to);
  }
}
const element = (tag, attributes = {}, html = "") => {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.innerHTML = html;
  return one;
};
const add = (host, ...rest) => host.appendChild(element(...rest));

// -- parts: a field of tokens, a strip of numbers, a slider

let fields = 0;
class TokenField {  // `which`: the entry of the state that it sets
  constructor(host, title, which, {prefix = true} = {}) {
    const id = `field${fields++}`;
    add(host, "h3", {id: `${id}-title`}, title);
    this.which = which;
    this.root = add(host, "div", {class: "tokens", role: "listbox", tabindex: 0, "aria-labelledby": `${id}-title`});
    this.first = prefix ? 0 : PREFIX;
    const above = prefix && PREFIX ? add(this.root, "div", {class: "prefix", role: "none"}) : null;
    const field = add(this.root, "div", {class: "field", role: "none"});
    field.style.gridTemplateColumns = `repeat(${GW}, 1fr)`;
    this.canvas = add(field, "canvas", {"aria-hidden": "true"});
    this.options = range(T).slice(this.first).map(t => {
      const own = add(t < PREFIX ? above : field, "div", {role: "option", id: `${id}-${t}`, "aria-selected": "false"}, t < PREFIX ? names[t] : "");
      if (t >= PREFIX) own.setAttribute("aria-label", `patch, ${names[t]}`);
      own.dataset.token = t;
      return own;
    });
    this.pinned = null;
    this.root.addEventListener("pointerover", event => {
      if (event.pointerType !== "mouse" || !event.target.dataset.token) return;
      this.pinned ??= state[which];
      this.take(Number(event.target.dataset.token));
    });
    this.root.addEventListener("pointerleave", () => {
      if (this.pinned !== null) this.take(this.pinned);
      this.pinned = null;
    });
    this.root.addEventListener("click", event => {
      if (!event.target.dataset.token) return;
      this.take(Number(event.target.dataset.token));
      this.pinned = this.pinned === null ? null : state[which];
    });
    this.root.addEventListener("keydown", event => this.press(event));
  }
  take(token) {
    const far = other => other < PREFIX || token < PREFIX ? (other === token ? 0 : 1e9) :
      Math.abs(Math.floor((other - PREFIX) / GW) - Math.floor((token - PREFIX) / GW)) + Math.abs((other - PREFIX) % GW - (token - PREFIX) % GW);
    state[this.which] = ROWS.reduce((best, other) => far(other) < far(best) ? other : best, ROWS[ROWS.length - 1]);
    draw();
  }
  press(event) {
    const at = row(state[this.which]), patch = state[this.which] - PREFIX;
    const across = ROWS.length === T && patch >= 0 ? GW : 1;
    const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: patch < GW ? -1 : -across, Home: -T, End: T};
    if (!(event.key in steps)) return;
    event.preventDefault();
    const first = this.first ? PREFIX : 0;
    state[this.which] = ROWS[Math.min(ROWS.length - 1, Math.max(first, at + steps[event.key]))];
    draw();
  }
  draw(values, options = {}, chosen = state[this.which]) {  // values: T, or null
    paintHeat(this.canvas, values && values.slice(PREFIX), options);
    const top = values && range0(values);
    for (const own of this.options) {
      const token = Number(own.dataset.token), on = token === chosen;
      if (token < PREFIX) own.style.boxShadow = values ? `inset 0 -5px rgb(${blend(values[token] / top).join(" ")})` : "";
      own.classList.toggle("on", on);
      own.setAttribute("aria-selected", on);
      if (on) this.root.setAttribute("aria-activedescendant", own.id);
    }
  }
}
class Strip {  // `which`: the entry of the state that holds the number under the pointer
  constructor(host, title, which, kind = "") {
    const own = add(host, "div", {class: `strip ${kind}`});
    this.title = add(own, "span", {}, title);
    const box = add(own, "div");
    this.canvas = add(box, "canvas", {"aria-hidden": "true"});
    this.mark = add(box, "i");
    this.which = which;
    this.canvas.addEventListener("pointermove", event => {
      const d = Math.floor(event.offsetX / this.canvas.clientWidth * this.canvas.width);
      state[which] = Math.min(this.canvas.width - 1, Math.max(0, d));
      draw();
    });
  }
  draw(values, top = range0(values)) {
    paint(this.canvas, values.length, 1, x => blend(values[x] / top));
    this.mark.style.left = `calc(${100 * state[this.which] / values.length}% - 2px)`;
    this.mark.style.width = `calc(${100 / values.length}% + 4px)`;
  }
}
function slider(host, text, which, last, from = 0) {
  const id = `slider-${which}-${fields++}`;
  const own = add(host, "div", {class: "slider"}, `<label for="${id}">${text}</label>`);
  const input = add(own, "input", {type: "range", id, min: from, max: last, step: 1});
  const shown = add(own, "output", {for: id, class: "label"});
  input.addEventListener("input", () => { state[which] = Number(input.value); draw(); });
  own.hidden = last === from;
  return text => { input.value = state[which]; shown.textContent = text ?? state[which] + 1; };
}
const patch = () => [state.query, state.key, ...ROWS].find(token => token >= PREFIX) - PREFIX;  // of the first stages
const who = token => label(token < PREFIX ? names[token] : `token at ${names[token]}`);
const whose = p => label(`patch in ${names[p + PREFIX]}`);

// -- the views, by the name of their stage

const VIEWS = {
  answer(host) {
    const canvas = add(host, "canvas", {role: "img", "aria-label": "the image"});
    const words = add(host, "div");
    return () => {
      paintImage(canvas, now());
      canvas.setAttribute("aria-label", `the image ${now().name}`);
      const {text, written, probability, classes} = now(), p = written ? percent(place("probability"), probability) : percent(place("lens", F.layers, 0), A("lens", F.layers, 0));
      words.innerHTML = `The model ${written ? "writes" : "says"}<div class="big label">${escaped(written ? text : classes[0])}</div>with a probability of ${p}`;
    };
  },
  patches(host) {
    const pair = add(host, "div", {class: "pair"});
    const field = new TokenField(add(pair, "div"), "the image in patches", "query", {prefix: false});
    const zoom = add(pair, "div"), small = P * P * F.channels <= 192;
    return () => {
      const p = patch(), top = Math.floor(p / GW) * P, left = p % GW * P;
      const table = c => `<table class="pixels">${range(P).map(y => `<tr>${range(P).map(x => {
        const value = pixel(now(), c, top + y, left + x), ink = value > 117 ? "#000" : "#fff";
        return `<td style="background: rgb(${value} ${value} ${value}); color: ${ink}">${n(place("pixel", c, top + y, left + x), value, 0)}</td>`;
      }).join("")}</tr>`).join("")}</table>`;
      const titles = F.channels === 3 ? ["red", "green", "blue"] : range(F.channels).map(c => `channel ${c + 1}`);
      zoom.innerHTML = `<h3>${whose(p)}</h3>` + (small ? `<div class="scroll" tabindex="0" role="region" aria-label="pixels">${range(F.channels)
        .map(c => (F.channels > 1 ? `<h3>${label(titles[c])}</h3>` : "") + table(c)).join("")}</div>` : '<div class="tile"><canvas aria-hidden="true"></canvas></div>');
      field.draw(null, {gap: true}, p + PREFIX);
      if (!small) paint(zoom.querySelector("canvas"), P, P, (x, y) => colours(now(), top + y, left + x));
    };
  },
  projection(host) {
    const move = slider(host, "filter", "filter", DATA.channels.length - 1);
    const tiles = add(host, "div", {class: "three"});
    const [x, e, product] = ["the patch, scaled", "× the filter", "= the products"].map(title => add(tiles, "div", {class: "tile"}, `<h3>${title}</h3><canvas aria-hidden="true"></canvas>`).querySelector("canvas"));
    const said = add(host, "div", {class: "readout"});
    return () => {
      move(`${state.filter + 1} of the ${DATA.channels.length} largest of ${F.dim}`);
      const p = patch(), top = Math.floor(p / GW) * P, left = p % GW * P, f = state.filter, C = F.channels;
      const E = (c, y, x) => MODEL.filter.at(f, (c * P + y) * P + x), all = range(C * P * P).map(k => MODEL.filter.at(f, k)), most = range0(all);
      const X = (c, y, x) => (pixel(now(), c, top + y, left + x) / 255 - DATA.mean[c]) / DATA.std[c];
      const products = range(P * P).map(k => range(C).reduce((sum, c) => sum + X(c, Math.floor(k / P), k % P) * E(c, Math.floor(k / P), k % P), 0));
      const seen = range0(range(C * P * P).map(k => X(Math.floor(k / P / P), Math.floor(k / P) % P, k % P)));
      paint(x, P, P, (x, y) => C === 3 ? [0, 1, 2].map(c => 128 + 127 * X(c, y, x) / seen) : blend(X(0, y, x) / seen));
      paint(e, P, P, (x, y) => C === 3 ? [0, 1, 2].map(c => 128 + 127 * E(c, y, x) / most) : blend(E(0, y, x) / most));
      paint(product, P, P, (x, y) => blend(products[y * P + x] / range0(products)));
      const sum = A("linear", p, f), bias = MODEL.filter_bias ? MODEL.filter_bias.at(f) : 0;
      said.innerHTML = `<p>${whose(p)}: the products add up to ${n(place("products", p, f), sum - bias, 3)}, and the bias is ${n(`model/filter_bias/${f}`, bias, 3)}.</p>
        <div class="bars"><span>linear map</span><span></span><b>${n(place("linear", p, f), sum, 3)}</b>
        <span>strided convolution</span><span></span><b>${n(place("convolution", p, f), A("convolution", p, f), 3)}</b></div>
        <p>Over all patches and all ${whole("fact/dim", F.dim)} filters, the two ${now().difference
          ? `differ by at most ${number(place("difference"), now().difference, now().difference.toExponential(1))}, which is rounding` : "are exactly equal here"}.</p>`;
    };
  },
  positions(host) {
    const pair = add(host, "div", {class: "pair"});
    const field = new TokenField(add(pair, "div"), "choose a token", "query");
    const map = MODEL.similarity ? add(pair, "div", {}, "<h3>how alike its place is to the others</h3>") : null;
    const canvas = map && add(map, "div", {class: "tile"}, '<canvas aria-hidden="true"></canvas>').firstChild, said = map && add(map, "p", {class: "readout"});
    const strips = [["embedded", "token"], ...(DATA.added ? [["position", "+ place"]] : []), ["stem", DATA.added ? "= what goes in" : "what goes in"]]
      .map(([name, title], i) => [name, new Strip(host, title, "wide", i === 2 ? "sum" : "")]);
    const move = slider(host, "number", "wide", F.dim - 1), line = add(host, "p", {class: "readout"});
    return () => {
      field.draw(null);
      if (map) {
        const p = patch(), i = row(p + PREFIX) - PREFIX, values = range(F.patches).map(j => MODEL.similarity.at(i, j));
        paintHeat(canvas, values, {signed: true});
        const best = range(F.patches).filter(j => j !== p).reduce((a, b) => values[b] > values[a] ? b : a);
        said.innerHTML = `${whose(p)}; most like its place: ${whose(best)}, ${n(`model/similarity/${i}/${best}`, values[best])}`;
      }
      const i = row(state.query), all = strips.map(([name]) => vector(name, F.dim, i));
      strips.forEach(([, strip], s) => strip.draw(all[s], range0(all.flat())));
      move();
      const [first, ...rest] = strips.map(([name]) => n(place(name, i, state.wide), A(name, i, state.wide), 3));
      line.innerHTML = `${label(`number ${state.wide + 1}`)}: ${first}` + (rest.length === 2 ? ` + ${rest[0]} ${DATA.normed ? "→" : "="} ${rest[1]}` : ` → ${rest[0]}`);
    };
  },
  qkv(host) {
    const pair = add(host, "div", {class: "pair"});
    const asks = new TokenField(add(pair, "div"), "who looks", "query"), seen = new TokenField(add(pair, "div"), "at whom", "key");
    const q = new Strip(host, "query of the token that looks", "dim"), k = new Strip(host, "key of the token seen", "dim"), v = new Strip(host, "value of the token seen", "dim");
    const move = slider(host, "number", "dim", F.head_dim - 1), line = add(host, "p", {class: "readout"});
    return () => {
      asks.draw(null);
      seen.draw(null);
      const i = row(state.query), j = row(state.key), at = [["q", i], ["k", j], ["v", j]];
      [q, k, v].forEach((strip, s) => strip.draw(vector(at[s][0], F.head_dim, state.layer, state.head, at[s][1])));
      move();
      const [a, b, c] = at.map(([name, t]) => n(here(name, t, state.dim), A(name, state.layer, state.head, t, state.dim), 3));
      line.innerHTML = `${label(`number ${state.dim + 1}`)}: query ${a}, key ${b}, value ${c}`;
    };
  },
  scores(host) {
    const pair = add(host, "div", {class: "pair"});
    const seen = new TokenField(add(pair, "div"), "scores: orange above zero, blue below", "key"), words = add(pair, "div", {class: "readout"});
    const strip = new Strip(host, "query × key", "dim");
    return () => {
      seen.draw(scores(), {signed: true});
      const i = row(state.query), j = row(state.key), l = state.layer, h = state.head, d = F.head_dim;
      const products = range(d).map(x => A("q", l, h, i, x) * A("k", l, h, j, x));
      strip.draw(products);
      const score = A("score", l, h, i, state.key), bias = has("bias") ? A("bias", l, h, i, state.key) : 0, sum = (score - bias) * Math.sqrt(d);
      words.innerHTML = `<p>${who(state.query)} looks at ${who(state.key)}.</p><p>${label(`Number ${state.dim + 1}`)}:
        ${n(here("q", i, state.dim), A("q", l, h, i, state.dim), 3)} × ${n(here("k", j, state.dim), A("k", l, h, j, state.dim), 3)} =
        ${n(here("product", i, j, state.dim), products[state.dim], 3)}</p>
        <p>All ${whole("fact/head_dim", d)} products add up to ${n(here("sum", i, state.key), sum)}. Divided by √${whole("fact/head_dim", d)}
        ${has("bias") ? ` and with ${n(here("bias", i, state.key), bias)} for the distance` : ""} this is the score:</p>
        <p class="big">${n(here("score", i, state.key), score)}</p>`;
    };
  },
  softmax(host) {
    const pair = add(host, "div", {class: "pair"});
    const seen = new TokenField(add(pair, "div"), "shares of attention", "key"), list = add(pair, "div");
    add(host, "h3", {}, "all heads of all layers, for the token that looks");
    const matrix = add(host, "div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "all heads"}), table = add(matrix, "div", {class: "heads"});
    table.style.gridTemplateColumns = `auto repeat(${F.heads}, minmax(1.8rem, 5.5rem))`;
    add(table, "span");
    range(F.heads).forEach(h => add(table, "span", {class: "label"}, `head ${h + 1}`));
    const buttons = range(F.layers).flatMap(l => {
      add(table, "span", {class: "label"}, `layer ${l + 1}`);
      return range(F.heads).map(h => {
        const own = add(table, "button", {"aria-label": `layer ${l + 1}, head ${h + 1}`}, "<canvas></canvas>");
        own.addEventListener("click", () => { Object.assign(state, {layer: l, head: h}); draw(); });
        return [own, l, h];
      });
    });
    return () => {
      const A = shares(), i = row(state.query), best = range(T).sort((a, b) => A[b] - A[a]).slice(0, 6);
      seen.draw(A);
      const line = (name, value, of) => `${name}<div><div style="width: ${100 * value / A[best[0]]}%"></div></div><b>${percent(of, value)}</b>`;
      list.innerHTML = `<h3>${who(state.query)} looks at</h3><div class="bars">${best.map(j => line(who(j), A[j], here("share", i, j))).join("")}
        ${T > 6 ? `<span>all others</span><span></span><b>${percent(here("rest", i), Math.max(0, 1 - best.reduce((sum, j) => sum + A[j], 0)))}</b>` : ""}</div>
        <p class="readout">Chosen: ${who(state.key)}, ${percent(here("share", i, state.key), A[state.key])}. If all ${whole("fact/tokens", T)} tokens had the same share, it would be ${percent("fact/even", 1 / T)}.</p>`;
      for (const [own, l, h] of buttons) {
        const values = shares(l, h).slice(PREFIX), top = range0(values);
        paint(own.firstChild, GW, GH, (x, y) => blend(values[y * GW + x] / top));
        own.setAttribute("aria-pressed", l === state.layer && h === state.head);
      }
    };
  },
  values(host) {
    const rows = range(Math.min(5, ROWS.length)).map(() => new Strip(host, "", "dim"));
    const others = new Strip(host, "all other tokens", "dim"), sum = new Strip(host, "<b>sum: what this head collected</b>", "dim", "sum");
    const move = slider(host, "number", "dim", F.head_dim - 1), line = add(host, "p", {class: "readout"});
    return () => {
      const A_ = shares(), i = row(state.query), l = state.layer, h = state.head, best = ROWS.slice().sort((a, b) => A_[b] - A_[a]).slice(0, rows.length);
      const parts = best.map(j => vector("v", F.head_dim, l, h, row(j)).map(x => x * A_[j])), output = vector("output", F.head_dim, l, h, i);
      const left = output.map((x, d) => x - parts.reduce((all, part) => all + part[d], 0)), top = range0([...parts.flat(), ...output]);
      parts.forEach((part, r) => { rows[r].draw(part, top); rows[r].title.innerHTML = `${percent(here("share", i, best[r]), A_[best[r]])} of ${who(best[r])}`; });
      others.draw(left, top);
      sum.draw(output, top);
      move();
      line.innerHTML = `${label(`number ${state.dim + 1}`)}: ${parts.map((part, r) => n(here("part", i, best[r], state.dim), part[state.dim], 3)).join(" + ")}
        + ${n(here("left", i, best.join("-"), state.dim), left[state.dim], 3)} (others) = ${n(here("output", i, state.dim), output[state.dim], 3)}, rounded`;
    };
  },
  block(host) {
    const words = ["flows in", "attention adds", "between", "MLP adds", "flows out"], shown = [0, 1, 3, 4];
    const table = add(host, "div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "lengths of vectors"});
    return () => {
      const i = row(state.query), top = Math.max(...range(F.layers).flatMap(l => shown.map(s => A("length", l, i, s))));
      table.innerHTML = `<h3>${who(state.query)}: lengths of its vectors</h3><table>${range(F.layers).map(l => `<tr><th scope="row">${label(`layer ${l + 1}`)}</th><td><div class="bars">${
        shown.map(s => `${words[s]}<div class="${s % 2 ? "blue" : ""}"><div style="width: ${100 * A("length", l, i, s) / top}%"></div></div>${n(place("length", l, i, s), A("length", l, i, s), 1)}`).join("")}</div></td></tr>`).join("")}</table>`;
    };
  },
  lens(host) {
    const table = add(host, "div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "classes after each layer"});
    return () => {
      const K = now().classes.length;
      const cell = (l, k) => {
        const p = A("lens", l, k), colour = blend(p);
        return `<td style="background: rgb(${colour.join(" ")}); color: ${luminance(colour) > 0.18 ? "#000" : "#fff"}">${percent(place("lens", l, k), p, 0)}</td>`;
      };
      table.innerHTML = `<table class="lens"><tr><th scope="col">after</th>${range(K).map(k => `<th scope="col">${label(now().classes[k])}</th>`).join("")}</tr>
        ${range(F.layers + 1).map(l => `<tr><th scope="row">${label(l ? `layer ${l}` : "no layer")}</th>${range(K).map(k => cell(l, k)).join("")}</tr>`).join("")}</table>`;
    };
  },
  result(host) {
    const bars = add(host, "div");
    return () => {
      bars.innerHTML = `<div class="bars">${range(now().classes.length).map(k => `${label(now().classes[k])}<div><div style="width: ${100 * A("lens", F.layers, k)}%"></div></div>
        <b>${percent(place("lens", F.layers, k), A("lens", F.layers, k))}</b>`).join("")}</div><p class="readout">The logit of ${label(now().classes[0])} is ${n(place("logit", 0, 0), A("logit", 0, 0))}${
        now().classes.length > 1 ? `, and that of ${label(now().classes[1])} is ${n(place("logit", 0, 1), A("logit", 0, 1))}` : ""}. The temperature is ${number("fact/temperature", DATA.temperature, DATA.temperature.toFixed(3))}.
        ${F.classes > now().classes.length ? `The page shows the ${whole("fact/shown", now().classes.length)} likeliest of ${whole("fact/classes", F.classes)} classes.` : ""}</p>`;
    };
  },
  writing(host) {
    const bar = add(host, "div", {class: "written", role: "group", "aria-label": "the written tokens"}), pair = add(host, "div", {class: "pair"});
    const move = slider(bar, "layer of the decoder", "deep", F.decoder_layers - 1), buttons = add(bar, "div");
    const tile = add(pair, "div", {class: "tile"}, '<h3></h3><canvas aria-hidden="true"></canvas><p class="readout"></p>'), bars = add(pair, "div");
    state.deep = F.decoder_layers - 1;
    buttons.addEventListener("click", event => {
      const m = event.target.closest("button")?.dataset.m;
      if (m === undefined) return;
      state.word = Number(m);
      draw();
    });
    return () => {
      const {written, candidates} = now(), m = state.word = Math.min(state.word, written.length - 1), l = state.deep;
      move();
      if (buttons.children.length !== written.length || buttons.dataset.image !== String(state.image)) {
        buttons.dataset.image = state.image;
        buttons.innerHTML = written.map((token, k) => `<button data-m="${k}" class="label">${escaped(token)}</button>`).join("");
      }
      [...buttons.children].forEach((own, k) => own.setAttribute("aria-pressed", k === m));
      const looked = range(F.patches).map(p => A("looked", l, m, p)), best = looked.indexOf(Math.max(...looked));
      paintHeat(tile.querySelector("canvas"), looked);
      tile.querySelector("h3").innerHTML = `where it looked for ${label(written[m])}`;
      tile.querySelector("p").innerHTML = `most: ${whose(best)}, ${percent(place("looked", l, m, best), looked[best])} of its attention`;
      bars.innerHTML = `<h3>what might have come</h3><div class="bars">${candidates[m].map((token, k) => `${label(token)}<div><div style="width: ${100 * A("said", m, k)}%"></div></div><b>${percent(place("said", m, k), A("said", m, k))}</b>`).join("")}</div>`;
    };
  },
  evidence(host) {
    const tiles = add(host, "div", {class: "three"}), made = range(3).map(() => add(tiles, "div", {class: "tile"}, '<h3></h3><canvas aria-hidden="true"></canvas><p class="readout"></p><div></div>'));
    const area = p => (p.reduce((a, b) => a + b) - (p[0] + p[p.length - 1]) / 2) / (p.length - 1);
    const curve = (p, colour, dashes = "none") => `<path fill="none" stroke="rgb(var(--${colour}))" stroke-width="3" stroke-dasharray="${dashes}" d="M${p.map((one, s) => `${10 + 280 * s / (p.length - 1)} ${100 - 90 * one}`).join("L")}"/>`;
    return () => {
      const kinds = [...range(now().arrays.evidence.shape[0]).map(c => ["evidence", c, `for ${now().classes[c]}`]), ["rollout", 0, "rollout"]];
      made.forEach((tile, t) => {
        tile.hidden = t >= kinds.length;
        if (tile.hidden) return;
        const [name, c, title] = kinds[t], values = range(F.patches).map(p => A(name, c, p)), sum = values.reduce((a, b) => a + b) || 1;
        const best = values.indexOf(Math.max(...values));
        paintHeat(tile.querySelector("canvas"), values);
        tile.querySelector("h3").innerHTML = label(title);
        tile.querySelector("p").innerHTML = `most: ${whose(best)}, ${percent(place(`${name}-share`, c, best), values[best] / sum)} of the map`;
        const measure = kind => {
          const own = range(now().arrays[kind].shape[1]).map(s => A(kind, t, s)), orders = range(now().arrays[`random_${kind}`].shape[1]);
          const random = orders.map(o => own.map((_, s) => A(`random_${kind}`, t, o, s))), areas = random.map(area);
          const low = areas.indexOf(Math.min(...areas)), high = areas.indexOf(Math.max(...areas)), at = o => n(place(`random_${kind}-area`, t, o), areas[o]);
          return {own, area: area(own), least: areas[low], most: areas[high], mean: own.map((_, s) => random.reduce((all, one) => all + one[s], 0) / random.length),
            said: `${n(place(`${kind}-area`, t), area(own))}; in random orders ${at(low)} to ${at(high)}`};
        };
        const D = measure("deletion"), I = measure("insertion"), seen = I.own[0] > 0.9 * I.own[I.own.length - 1];
        const better = D.area < D.least && (seen || I.area > I.most), worse = D.area > D.most || (!seen && I.area < I.least);
        tile.querySelector("div").innerHTML = D.own[0] < 0.05 ? `<p class="readout">The model gives this class less than ${label("5 %")}: too little to measure how it falls.</p>`
          : `<svg viewBox="0 0 300 110" role="img" aria-label="probability while patches are removed, and while they are added"><path d="M10 5V100H295" fill="none" stroke="var(--line)"/>
          ${curve(D.own, "minus")}${curve(I.own, "plus")}${curve(D.mean, "minus", "4 5")}${curve(I.mean, "plus", "4 5")}</svg>
          <p class="readout">deletion (blue): ${D.said}<br>insertion (orange): ${I.said}</p><p class="readout"><b>${better ? "Better than all random orders."
          : worse ? "Worse than random orders: do not rely on this map here." : "No better than random orders: do not rely on this map here."}</b>${seen ? " The blurred image is recognized already, so insertion cannot judge." : ""}</p>`;
      });
    };
  },
  cost(host) {
    const move = slider(host, "image", "size", Math.max(64, 2 * GW), 1), chart = add(host, "div"), table = add(host, "div");
    state.size = GW;
    const tokens = side => PREFIX + side * side, linear = side => tokens(side) * F.linear, squared = side => 2 * tokens(side) ** 2 * F.dim * F.layers;
    return () => {
      const side = state.size, last = Math.max(64, 2 * GW), top = linear(last) + squared(last);
      move(`${side * P} × ${side * P} pixels`);
      const X = s => 10 + 580 * tokens(s) / tokens(last), Y = m => 210 - 195 * m / top, sides = range(last).map(s => s + 1);
      const path = (cost, colour) => `<path fill="none" stroke="rgb(var(--${colour}))" stroke-width="3" d="M${sides.map(s => `${X(s)} ${Y(cost(s))}`).join("L")}"/>`;
      chart.innerHTML = `<svg viewBox="0 0 600 240" role="img" aria-label="multiplications by number of tokens"><path d="M10 10V210H590" fill="none" stroke="var(--line)"/>
        ${path(squared, "plus")}${path(linear, "minus")}<circle cx="${X(side)}" cy="${Y(squared(side))}" r="7" fill="rgb(var(--plus))"/><circle cx="${X(side)}" cy="${Y(linear(side))}" r="7" fill="rgb(var(--minus))"/>
        <text x="20" y="26">multiplications</text><text x="590" y="232" text-anchor="end">tokens</text></svg>
        <p class="readout">The axes reach to ${whole(`cost/${last}/tokens`, tokens(last))} tokens and ${short(`cost/${last}/total`, top)} multiplications.</p>`;
      const of = name => `cost/${side}/${name}`;
      table.innerHTML = `<div class="bars"><span>tokens</span><span></span><b>${whole(of("tokens"), tokens(side))}</b><span>scores in each head of each layer</span><span></span><b>${short(of("scores"), tokens(side) ** 2)}</b>
        <span>multiplications between tokens (orange)</span><span></span><b>${short(of("squared"), squared(side))}</b><span>multiplications with weights (blue)</span><span></span><b>${short(of("linear"), linear(side))}</b>
        <span>part of the work that is between tokens</span><span></span><b>${percent(of("part"), squared(side) / (squared(side) + linear(side)))}</b></div>`;
    };
  },
};

// -- start

function build() {
  const bar = add(document.getElementById("bar"), "div"), thumbs = add(bar, "div", {class: "thumbs"});
  const pictures = DATA.images.map((image, i) => {
    const own = add(thumbs, "button", {"aria-label": `image ${image.name}`}, "<canvas></canvas>");
    paintImage(own.firstChild, image);
    own.addEventListener("click", () => { state.image = i; draw(); });
    return own;
  });
  thumbs.hidden = pictures.length < 2;
  const looks = add(bar, "span"), layer = slider(bar, "layer", "layer", F.layers - 1), head = slider(bar, "head", "head", F.heads - 1);
  drawers.push(() => {
    pictures.forEach((own, i) => own.setAttribute("aria-pressed", i === state.image));
    looks.innerHTML = `looks: ${who(state.query)}`;
    layer();
    head();
  });
  state.query = ROWS[0];
  if (!PREFIX) state.query = ROWS[Math.floor(ROWS.length / 2)];
  const first = shares(), patches = ROWS.filter(token => token >= PREFIX);
  state.key = patches.reduce((best, token) => first[token] > first[best] ? token : best);
  for (const host of document.querySelectorAll("[data-view]")) drawers.push(VIEWS[host.dataset.view](host));
}
let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawers.forEach(one => one()); });
}
readColours();
build();
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); });
