"use strict"
const $ = (id) => document.getElementById(id)
const make = (tag, props = {}, ...children) => { const node = Object.assign(document.createElement(tag), props); node.append(...children); return node }
const VIEWS = {
  none: ["the image", "Choose a patch (click, or arrows and Enter) to remove it, and again to restore it. A removed patch has the mean colour of the training images."],
  heat: ["the heat map of a class", "Patches that speak for the class: attention, weighted by the gradient of the class's logit (Chefer et al., 2021)."],
  attention: ["attention of a head", "How much what the head of the model reads (class token, or mean of patches) looks at each patch."],
  rollout: ["attention rollout", "The attention of all layers up to this one, multiplied (Abnar & Zuidema, 2020)."],
}
let image = null, found = null, removed = new Set(), asked = 0, classes = null

async function request(path, body) {
  const headers = $("token").value ? { Authorization: `Bearer ${$("token").value}` } : {}
  const response = await fetch(path, { method: body ? "POST" : "GET", body, headers })
  const content = await response.json()
  if (response.status === 401) $("ask").hidden = false
  if (!response.ok) throw new Error(content.error)
  return content
}

async function explain() {
  if (!image) return
  const turn = ++asked
  $("answer").setAttribute("aria-busy", "true")
  try {
    classes ??= await request("classes")
    const query = new URLSearchParams({ remove: [...removed].join() })
    if ($("class").value) query.set("class_name", $("class").value)
    const content = await request(`explain?${query}`, image)
    if (turn === asked) { found = content; show() } // an answer that is overtaken is dropped
  } catch (error) {
    if (turn === asked) $("answer").replaceChildren(make("p", { className: "error", textContent: error.message || "The server does not answer." }))
  }
  if (turn === asked) $("answer").setAttribute("aria-busy", "false")
}

function show() {
  const { answer, missing } = found
  const rows = answer.classes.map(({ name, probability }) => make("li", {},
    make("span", { textContent: `${(100 * probability).toFixed(1)} %` }), name, make("progress", { value: probability, ariaLabel: `probability of ${name}` })))
  const unlike = answer.novelty === null ? "This model cannot tell whether an image is of none of the classes."
    : `${answer.none_of_these ? "Probably none of these" : "Not unlike the training images"} (novelty ${answer.novelty.toFixed(2)}; above 1: none of these).`
  const without = removed.size ? [make("p", { textContent: `${removed.size} of ${found.grid[0] * found.grid[1]} patches are removed.` })] : []
  $("answer").replaceChildren(make("ol", {}, ...rows), make("p", { textContent: unlike }), ...without)
  fill("view", Object.keys(VIEWS).filter((key) => key === "none" || (key === "heat" ? found.heat_map : found.attention.length)), (key) => VIEWS[key][0])
  fill("layer", found.attention.map((_, i) => i), (i) => i + 1, found.attention.length - 1)
  fill("head", ["mean", ...(found.attention[0] ?? []).map((_, i) => i)], (i) => (i === "mean" ? "mean" : i + 1))
  fill("class", ["", ...classes], (name) => name || "the best class")
  $("views").hidden = false
  lay()
  paint(missing)
}

function fill(id, values, label, chosen = 0) {
  const select = $(id), before = select.options.length ? select.value : String(values[chosen])
  select.replaceChildren(...values.map((value) => make("option", { value, textContent: label(value) })))
  if (values.some((value) => String(value) === before)) select.value = before
}

function lay() {
  const [rows, columns] = found.grid, seen = $("seen")
  if (seen.querySelectorAll("[role=gridcell]").length !== rows * columns) {
    const cell = (place) => Object.assign(make("div", { role: "gridcell", tabIndex: place ? -1 : 0 }), { place })
    const grid = make("div", { role: "grid", ariaLabel: "patches of the image", ariaMultiSelectable: "true" })
    for (let row = 0; row < rows; row++) grid.append(make("div", { role: "row" }, ...Array.from({ length: columns }, (_, i) => cell(row * columns + i))))
    seen.replaceChildren(make("img", { alt: "the image as the model sees it" }), grid)
    seen.className = "full"
  }
  seen.querySelector("img").src = found.picture
}

function weights() {
  const { attention, rollout, heat_map } = found, layer = +$("layer").value
  if ($("view").value === "heat") return heat_map
  if ($("view").value === "rollout") return rollout[layer]
  if ($("view").value !== "attention") return null
  const heads = attention[layer]
  return $("head").value === "mean" ? heads[0].map((_, n) => heads.reduce((sum, head) => sum + head[n] / heads.length, 0)) : heads[+$("head").value]
}

function paint(missing = found.missing) {
  const view = $("view").value, values = weights(), most = values ? Math.max(...values, 1e-9) : 1
  for (const [id, views] of Object.entries({ layer: ["attention", "rollout"], head: ["attention"], class: ["heat"] })) $(id).parentElement.hidden = !views.includes(view)
  for (const cell of $("seen").querySelectorAll("[role=gridcell]")) {
    const value = values?.[cell.place], gone = removed.has(cell.place)
    cell.style.background = values ? `color-mix(in srgb, rgb(255 196 0) ${Math.round(100 * value / most)}%, rgb(28 0 84))` : "none"
    cell.style.opacity = values ? 0.72 : 1
    cell.ariaSelected = String(gone)
    cell.ariaLabel = `row ${Math.floor(cell.place / found.grid[1]) + 1}, column ${cell.place % found.grid[1] + 1}${gone ? ", removed" : ""}${values ? `, ${value.toFixed(2)}` : ""}`
  }
  const range = !values ? "" : view === "heat" ? ` Here: ${found.class_name}.` : ` Brightest: ${most.toFixed(1)} times even attention.`
  $("about").textContent = VIEWS[view][1] + range + (missing ? ` Not available: ${missing}.` : "")
}

function toggle(cell) {
  if (!removed.delete(cell.place)) removed.add(cell.place)
  paint()
  explain()
}

function take(file) {
  if (!file) return
  image = file
  removed.clear()
  explain()
}

$("seen").addEventListener("click", ({ target }) => target.role === "gridcell" && toggle(target))
$("seen").addEventListener("keydown", (event) => {
  const cell = event.target, columns = found?.grid[1]
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key]
  if (cell.role !== "gridcell" || (!step && ![" ", "Enter"].includes(event.key))) return
  event.preventDefault()
  if (!step) return toggle(cell)
  const next = $("seen").querySelectorAll("[role=gridcell]")[cell.place + step]
  if (next) { cell.tabIndex = -1; next.tabIndex = 0; next.focus() }
})
for (const id of ["view", "layer", "head"]) $(id).addEventListener("change", () => paint())
for (const id of ["class", "token"]) $(id).addEventListener("change", explain)
$("restore").addEventListener("click", () => { removed.clear(); explain() })
$("file").addEventListener("change", () => take($("file").files[0]))
document.addEventListener("paste", (event) => take(event.clipboardData.files[0]))
document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over") })
document.addEventListener("dragleave", () => $("drop").classList.remove("over"))
document.addEventListener("drop", (event) => { event.preventDefault(); $("drop").classList.remove("over"); take(event.dataTransfer.files[0]) })

const pad = $("pad"), pen = pad.getContext("2d"), at = { x: 140, y: 140, down: false }
Object.assign(pen, { lineWidth: 30, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" })
const clear = () => { pen.fillStyle = "#000"; pen.fillRect(0, 0, 280, 280) }
const draw = (x, y) => { pen.beginPath(); pen.moveTo(at.x, at.y); pen.lineTo(x, y); pen.stroke() }
const send = () => pad.toBlob(take)
const place = (event) => { const box = pad.getBoundingClientRect(); return [(event.clientX - box.x) * 280 / box.width, (event.clientY - box.y) * 280 / box.height] }
pad.addEventListener("pointerdown", (event) => { [at.x, at.y] = place(event); at.down = true; pad.setPointerCapture(event.pointerId); draw(at.x, at.y) })
pad.addEventListener("pointermove", (event) => { if (at.down && event.buttons) { const [x, y] = place(event); draw(x, y); Object.assign(at, { x, y }) } })
pad.addEventListener("pointerup", () => { at.down = false; send() })
pad.addEventListener("keydown", (event) => {
  const move = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] }[event.key]
  if (!move && event.key !== " ") return
  event.preventDefault()
  if (!move) { at.down = !at.down; if (!at.down) send() }
  const [x, y] = move ? [at.x + move[0], at.y + move[1]].map((v) => Math.min(270, Math.max(10, v))) : [at.x, at.y]
  if (at.down) draw(x, y)
  Object.assign(at, { x, y })
  $("keys").textContent = `The pen is ${at.down ? "down" : "up"}, ${Math.round(x / 2.8)} % from the left and ${Math.round(y / 2.8)} % from the top. Space ${at.down ? "lifts it and asks" : "lowers it"}.`
})
$("clear").addEventListener("click", clear)
clear()
fetch("ready").then((response) => response.json()).then(({ model }) => { if (model) $("model").textContent = document.title = model })
