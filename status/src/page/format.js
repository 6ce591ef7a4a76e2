// Numbers as people read them, and parts of the page.

export const NOTHING = "–";

export function count(number) {
  return number == null ? NOTHING : Math.round(number).toLocaleString("en");
}

export function percent(share) {
  return share == null ? NOTHING : `${Math.round(100 * share)} %`;
}

// Three digits, whatever the size.
export function brief(number) {
  if (number == null) return NOTHING;
  if (number !== 0 && Math.abs(number) < 0.001) return number.toExponential(2);
  return number.toLocaleString("en", { maximumSignificantDigits: Math.abs(number) < 1000 ? 3 : 5 });
}

export function bytes(number) {
  if (number == null) return NOTHING;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let place = 0;
  while (number >= 1000 && place < units.length - 1) {
    number /= 1000;
    place += 1;
  }
  return `${brief(number)} ${units[place]}`;
}

export function seconds(time) {
  if (time == null) return NOTHING;
  if (time < 0.001) return `${brief(1e6 * time)} µs`;
  if (time < 1) return `${brief(1e3 * time)} ms`;
  if (time < 60) return `${time.toFixed(1)} s`;
  if (time < 3600) return `${Math.floor(time / 60)} min ${Math.floor(time % 60)} s`;
  return `${Math.floor(time / 3600)} h ${Math.floor((time % 3600) / 60)} min`;
}

export function middle(numbers) {
  const sorted = numbers.filter((number) => number != null).sort((one, other) => one - other);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
}

export function clock(date) {
  return date.toLocaleTimeString("en-GB");
}

// A few numbers of many: 1, 2, 3 and 97 more.
export function few(numbers) {
  const shown = numbers.slice(0, 6).join(", ");
  const more = numbers.length - 6;
  return more > 0 ? `${shown} and ${more} more` : shown;
}

export function byId(id) {
  return document.getElementById(id);
}

// Writes only what has changed: a reader of the screen hears it, and a thousand rows cost little.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text != null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Names and values, in place of those that are there.
export function describe(list, pairs) {
  if (list.children.length !== pairs.length) {
    list.replaceChildren(...pairs.map(() => {
      const box = element("div");
      box.append(element("dt"), element("dd"));
      return box;
    }));
  }
  pairs.forEach(([name, value], place) => {
    const [term, told] = list.children[place].children;
    write(term, name);
    write(told, value);
  });
}

// Rows of a table: columns are [name, is a number], rows have cells, a kind and a header's place.
export function tabulate(table, columns, rows) {
  if (!table.tHead) {
    const row = table.createTHead().insertRow();
    for (const [name, number] of columns) {
      row.append(element("th", name, { scope: "col", class: number ? "number" : "text" }));
    }
    table.createTBody();
  }
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  while (body.rows.length < rows.length) {
    const row = body.insertRow();
    for (const [, number] of columns) row.insertCell().className = number ? "number" : "text";
  }
  rows.forEach(({ cells, kind }, place) => {
    const row = body.rows[place];
    if (row.dataset.kind !== kind) row.dataset.kind = kind;
    cells.forEach((cell, column) => write(row.cells[column], cell));
  });
}
