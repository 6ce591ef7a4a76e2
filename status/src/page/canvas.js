// Drawing that is sharp on every screen and in both sets of colours.

import { seconds } from "./format.js";

let colours = null;

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = null; });

export function parse(text) {
  return [1, 3, 5].map((place) => parseInt(text.slice(place, place + 2), 16));
}

// 64 steps over three colours.
function ramp(stops) {
  const steps = [];
  for (let step = 0; step < 64; step += 1) {
    const place = (step / 63) * (stops.length - 1);
    const below = Math.min(Math.floor(place), stops.length - 2);
    const part = place - below;
    steps.push(stops[below].map((from, channel) =>
      Math.round(from + part * (stops[below + 1][channel] - from))));
  }
  return steps;
}

// The colours of style.css.
export function palette() {
  if (colours) return colours;
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  colours = {
    text: named("text"), soft: named("soft"), line: named("line"), card: named("card"),
    accent: named("accent"), warn: named("warn"), bad: named("bad"), empty: named("empty"),
    wait: ramp([0, 1, 2].map((stop) => parse(named(`ramp-${stop}`)))),
    heat: ramp([0, 1, 2].map((stop) => parse(named(`heat-${stop}`)))),
  };
  return colours;
}

export function shade(steps, share) {
  return steps[Math.max(0, Math.min(63, Math.round(63 * share)))];
}

export function css([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

// Black or white, whichever is read better on a colour.
export function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000" : "#fff";
}

// A canvas as wide as its place and so high, cleared, in units of CSS pixels.
export function begin(canvas, height) {
  const width = canvas.clientWidth;
  const scale = devicePixelRatio || 1;
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, "DejaVu Sans", sans-serif';
  context.textBaseline = "middle";
  return { context, width, height };
}

// Pixels, one for each cell, that are drawn at any size: a million cost one call.
export function cells(across, down) {
  const image = new ImageData(across, down);
  return {
    set(column, row, [red, green, blue]) {
      const place = 4 * (row * across + column);
      image.data[place] = red;
      image.data[place + 1] = green;
      image.data[place + 2] = blue;
      image.data[place + 3] = 255;
    },
    draw(context, left, top, width, height) {
      const small = new OffscreenCanvas(across, down);
      small.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, left, top, width, height);
    },
  };
}

// Places for about so many round numbers from 0 to the most.
export function ticks(most, wanted) {
  if (!(most > 0)) return [0];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
  // Of the largest numbers a sum of steps may be infinite, and then never ends.
  return Array.from({ length: Math.floor((most / step) * 1.0001) + 1 }, (_, place) => place * step);
}

// When the looks were that are drawn from left to right: they are not always a second apart.
export function times(context, { first, width, y, passed }) {
  context.textAlign = "right";
  context.fillText("now", width, y);
  context.textAlign = "left";
  // So far from the other that both are read.
  if (first < width - 110) context.fillText(`${seconds(passed / 1000)} ago`, first, y);
}
