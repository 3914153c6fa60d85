# SPDX-License-Identifier: Apache-2.0
#
# A program with known call chains, for Ruby 2.7 and later. Says its chains as JSON, works until it is killed.
#
# Each chain is a list of [method, lines], leaf first, of Ruby's frames; the lines are those with the comment "at TAG",
# [] for a method in C. From 3.3 on some of these are written in Ruby, in files that begin with "<internal:": such a
# file is as good.
#
# usage: ruby_work.rb [OPTION...] [CHAIN...]
(work; return) if $loaded_again # at <top (required)>

require "json"

HERE = File.realpath(__FILE__)
JITTED = defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?
ROUNDS = JITTED ? 8_000_000 : 400_000 # of the leaf's loop, some 10 ms

# The leaf: runs for a while without calling anything.
def work # at work/jit
  i = 0
  total = 0
  rounds = ROUNDS
  while i < rounds # at work/test
    total += i # at work/add
    i += 1 # at work/step
  end
  total
end

# JIT code does not say which of the leaf's lines it is at.
JIT = JITTED ? ["work/jit"] : []
WORK = ["Object#work", ["work/test", "work/add", "work/step"] + JIT].freeze

# ---- classes, modules, their methods

module Shop
  class Base
    def inherited
      work # at Shop::Base#inherited
    end

    def above
      work # at Shop::Base#above
    end
  end

  module Tax
    def taxed
      work # at Shop::Tax#taxed
    end

    def self.rate
      work # at Shop::Tax.rate
    end
  end

  module Loud
    def above
      super # at Shop::Loud#above
    end
  end

  class Item
    def initialize(price)
      @price = price
    end

    attr_reader :price

    def <=>(other)
      work # at Shop::Item#<=>
      price <=> other.price
    end
    include Comparable
  end

  class Cart < Base
    include Tax
    prepend Loud

    def self.build
      work # at Shop::Cart.build
    end

    class << self
      def make
        work # at Shop::Cart.make
      end
    end

    def total(n)
      n.times { add } # at Shop::Cart#total
    end

    def add
      work # at Shop::Cart#add
    end
    alias put add

    def above
      super # at Shop::Cart#above
    end

    define_method(:defined) { |n| work } # at Shop::Cart#defined
    define_method(:defined_block) do |n|
      [n].each { |_| work } # at Shop::Cart#defined_block
    end
    [:first, :second].each do |name|
      define_method("made_#{name}") { work } # at Shop::Cart#made_first
    end
    class_eval "def evaluated\n work\nend", "cart.erb", 41

    def optional(a, b = 2, c = a + 1, key: 4)
      work # at Shop::Cart#optional
    end

    def method_missing(name, *arguments)
      name == :ghost ? work : super # at Shop::Cart#method_missing
    end

    def respond_to_missing?(name, all)
      name == :ghost || super
    end
  end
end

CART = Shop::Cart.new

def by_instance
  CART.total(1) # at by_instance
end

def by_singleton
  Shop::Cart.build # at by_singleton/1
  Shop::Cart.make # at by_singleton/2
  Shop::Tax.rate # at by_singleton/3
end

def by_module
  CART.taxed # at by_module
end

def by_parent
  CART.inherited # at by_parent
end

def by_super
  CART.above # at by_super
end

def by_alias
  CART.put # at by_alias
end

def by_define_method
  CART.defined(1) # at by_define_method/1
  CART.defined_block(1) # at by_define_method/2
  CART.made_first # at by_define_method/3
end

def by_class_eval
  CART.evaluated # at by_class_eval
end

def by_optional
  CART.optional(1) # at by_optional
  CART.optional(1, 2) # at by_optional
  CART.optional(1, 2, 3, key: 5) # at by_optional
end

def by_missing
  CART.ghost # at by_missing
end

ALONE = Object.new
def ALONE.go
  work # at ALONE
end

def by_object
  ALONE.go # at by_object
end

UNNAMED = Class.new do
  def go
    work # at UNNAMED
  end
end.new

def by_unnamed
  UNNAMED.go # at by_unnamed
end

module Louder
  refine String do
    def shout
      work # at shout
    end
  end
end
using Louder

def by_refinement
  "x".shout # at by_refinement
end

# ---- methods in C, with and without a block

def by_each
  [1].each do |_| # at by_each
    { 1 => 2 }.each do |_, _| # at by_each/1
      work # at by_each/2
    end
  end
end

def by_loop
  loop do # at by_loop
    work # at by_loop/block
    break
  end
end

def by_index
  [1].each_with_index { |_, _| work } # at by_index
end

def by_map
  [1].map { |_| work } # at by_map
end

def by_inject
  [1, 2].inject { |a, _| work } # at by_inject
end

def by_sort_by
  [2, 1].sort_by { |_| work } # at by_sort_by
end

def by_sort
  [2, 1].sort { |a, b| work; a <=> b } # at by_sort
end

ITEMS = [Shop::Item.new(1), Shop::Item.new(2)].freeze
def by_max
  ITEMS.max # at by_max
end

def by_gsub
  "a".gsub(/a/) { work; "b" } # at by_gsub
end

def by_symbol
  [CART].each(&:add) # at by_symbol
end

def by_method_object
  CART.method(:add).call # at by_method_object/1
  [1].each(&CART.method(:optional)) # at by_method_object/2
end

def by_public_send
  CART.public_send(:add) # at by_public_send
end

def by_send
  CART.send(:add) # at by_send
end

def by_lambda
  adder = lambda { |_| work } # at by_lambda/block
  adder.call(1) # at by_lambda
end

def yielding
  yield # at yielding
end

def by_yield
  yielding { work } # at by_yield
end

def by_proc
  saved = proc { work } # at by_proc/block
  yielding(&saved) # at by_proc
end

def by_instance_exec
  CART.instance_exec { add } # at by_instance_exec
end

def by_eval
  eval("work", binding, HERE, __LINE__) # at by_eval
end

def by_class
  eval("class Body\n work\nend", TOPLEVEL_BINDING, "body.rb", 7) # at by_class
end

def by_load
  $loaded_again = true
  load(HERE) # at by_load
ensure
  $loaded_again = false
end

def by_tap
  1.tap { work } # at by_tap
end

NUMBER = 7**30_000
def by_digits
  NUMBER.to_s # at by_digits
end

WORDS = Array.new(20_000) { |i| (i * 7919 % 20_000).to_s }
def by_sorting
  WORDS.sort # at by_sorting
end

def by_match
  /(a|b)*c/.match?("ab" * 9_000) # at by_match
end

# ---- exceptions

# Where a rescue clause runs, its method stands at its beginning; where an ensure clause runs, there.
def by_rescue # at by_rescue/raise
  raise "x"
rescue StandardError
  work # at by_rescue
end

def ensuring
  raise "x"
ensure
  work # at ensuring
end

def by_ensure
  ensuring # at by_ensure
rescue StandardError
  nil
end

def by_rescue_in_block
  [1].each do |_| # at by_rescue_in_block
    begin # at by_rescue_in_block/raise
      raise "x"
    rescue StandardError
      work # at by_rescue_in_block/rescue
    end
  end
end

def by_catch
  catch(:done) do # at by_catch
    work # at by_catch/block
    throw :done
  end
end

def raising(n)
  raise "x" if n == 0 # at raising/raise
  raising(n - 1) # at raising
end

def by_raise
  i = 0
  while i < 400
    begin
      raising(20) # at by_raise
    rescue StandardError
      i += 1 # at by_raise
    end
  end
end

# ---- recursion, yields that are mostly entering and leaving

def recurse(n)
  return work if n == 0 # at recurse/end
  recurse(n - 1) # at recurse
end

def by_recursion
  recurse(40) # at by_recursion
end

def by_deep
  recurse(400) # at by_deep
end

def nest(n, &block)
  return work if n == 0 # at nest/end
  [1].each { |_| nest(n - 1) } # at nest
end

def by_nest
  nest(30) # at by_nest
end

def by_times
  100_000.times { |i| i } # at by_times
end

def by_upto
  1.upto(100_000) do |i| # at by_upto
    i # at by_upto/block
  end # at by_upto/block
end

# ---- fibers, enumerators, threads, ractors

def by_fiber
  Fiber.new { work }.resume # at by_fiber
end

def by_enumerator
  e = Enumerator.new { |y| y << work } # at by_enumerator
  e.next
end

def by_enumerating
  [1].each.with_index(1) { |_, _| work } # at by_enumerating
end

def by_lazy
  [1].lazy.map { |_| work }.first(1) # at by_lazy
end

def by_thread
  Thread.new { work }.join # at by_thread
end

def by_ractor
  r = Ractor.new { work } # at by_ractor
  r.respond_to?(:value) ? r.value : r.take
end

# ---- the collector

def by_gc
  GC.start # at by_gc
end

def by_allocation
  i = 0
  while i < 40_000 # at by_allocation
    [i, i.to_s] # at by_allocation
    i += 1 # at by_allocation
  end
end

def by_compact
  GC.compact # at by_compact
end

# ---- what it says

C = [].freeze
def c(name)
  [name, C]
end

CHAINS = {
  "by_instance" => [[WORK, ["Shop::Cart#add", "Shop::Cart#add"], ["block in Shop::Cart#total", "Shop::Cart#total"],
                     c("Integer#times"), ["Shop::Cart#total", "Shop::Cart#total"], "by_instance"]],
  "by_singleton" => [[WORK, ["Shop::Cart.build", "Shop::Cart.build"], ["Object#by_singleton", "by_singleton/1"]],
                     [WORK, ["Shop::Cart.make", "Shop::Cart.make"], ["Object#by_singleton", "by_singleton/2"]],
                     [WORK, ["Shop::Tax.rate", "Shop::Tax.rate"], ["Object#by_singleton", "by_singleton/3"]]],
  "by_module" => [[WORK, ["Shop::Tax#taxed", "Shop::Tax#taxed"], "by_module"]],
  "by_parent" => [[WORK, ["Shop::Base#inherited", "Shop::Base#inherited"], "by_parent"]],
  "by_super" => [[WORK, ["Shop::Base#above", "Shop::Base#above"], ["Shop::Cart#above", "Shop::Cart#above"],
                  ["Shop::Loud#above", "Shop::Loud#above"], "by_super"]],
  "by_alias" => [[WORK, ["Shop::Cart#add", "Shop::Cart#add"], "by_alias"]],
  "by_define_method" => [
    [WORK, ["Shop::Cart#defined", "Shop::Cart#defined"], ["Object#by_define_method", "by_define_method/1"]],
    [WORK, ["block in Shop::Cart#defined_block", "Shop::Cart#defined_block"], c("Array#each"),
     ["Shop::Cart#defined_block", "Shop::Cart#defined_block"], ["Object#by_define_method", "by_define_method/2"]],
    [WORK, ["Shop::Cart#made_first", "Shop::Cart#made_first"], ["Object#by_define_method", "by_define_method/3"]]
  ],
  "by_class_eval" => [[WORK, ["Shop::Cart#evaluated", 42, "cart.erb"], "by_class_eval"]],
  "by_optional" => [[WORK, ["Shop::Cart#optional", "Shop::Cart#optional"], "by_optional"]],
  "by_missing" => [[WORK, ["Shop::Cart#method_missing", "Shop::Cart#method_missing"], "by_missing"]],
  "by_object" => [[WORK, ["go", "ALONE"], "by_object"]],
  "by_unnamed" => [[WORK, ["go", "UNNAMED"], "by_unnamed"]],
  "by_refinement" => [[WORK, ["shout", "shout"], "by_refinement"]],
  "by_each" => [[WORK, ["block (2 levels) in Object#by_each", "by_each/2"], c("Hash#each"),
                 ["block in Object#by_each", "by_each/1"], c("Array#each"), "by_each"]],
  "by_loop" => [[WORK, ["block in Object#by_loop", "by_loop/block"], c("Kernel#loop"), "by_loop"]],
  "by_index" => [[WORK, ["block in Object#by_index", "by_index"], c("Array#each"), c("Enumerable#each_with_index"),
                  "by_index"]],
  "by_map" => [[WORK, ["block in Object#by_map", "by_map"], c("Array#map"), "by_map"]],
  "by_inject" => [[WORK, ["block in Object#by_inject", "by_inject"], c("Array#each"), c("Enumerable#inject"),
                   "by_inject"]],
  "by_sort_by" => [[WORK, ["block in Object#by_sort_by", "by_sort_by"], c("Array#each"), c("Enumerable#sort_by"),
                    "by_sort_by"]],
  "by_sort" => [[WORK, ["block in Object#by_sort", "by_sort"], c("Array#sort"), "by_sort"]],
  "by_max" => [[WORK, ["Shop::Item#<=>", "Shop::Item#<=>"], c("Array#max"), "by_max"]],
  "by_gsub" => [[WORK, ["block in Object#by_gsub", "by_gsub"], c("String#gsub"), "by_gsub"]],
  "by_symbol" => [[WORK, ["Shop::Cart#add", "Shop::Cart#add"], c("Array#each"), "by_symbol"]],
  "by_method_object" => [
    [WORK, ["Shop::Cart#add", "Shop::Cart#add"], c("Method#call"), ["Object#by_method_object", "by_method_object/1"]],
    [WORK, ["Shop::Cart#optional", "Shop::Cart#optional"], c("Array#each"),
     ["Object#by_method_object", "by_method_object/2"]]
  ],
  "by_public_send" => [[WORK, ["Shop::Cart#add", "Shop::Cart#add"], c("Kernel#public_send"), "by_public_send"]],
  "by_send" => [[WORK, ["Shop::Cart#add", "Shop::Cart#add"], "by_send"]],
  "by_lambda" => [[WORK, ["block in Object#by_lambda", "by_lambda/block"], "by_lambda"]],
  "by_yield" => [[WORK, ["block in Object#by_yield", "by_yield"], ["Object#yielding", "yielding"], "by_yield"]],
  "by_proc" => [[WORK, ["block in Object#by_proc", "by_proc/block"], ["Object#yielding", "yielding"], "by_proc"]],
  "by_instance_exec" => [[WORK, ["Shop::Cart#add", "Shop::Cart#add"],
                          ["block in Object#by_instance_exec", "by_instance_exec"], c("BasicObject#instance_exec"),
                          "by_instance_exec"]],
  "by_eval" => [[WORK, ["Object#by_eval", "by_eval"], c("Kernel#eval"), "by_eval"]],
  "by_class" => [[WORK, ["<class:Body>", 8, "body.rb"], ["<main>", 7, "body.rb"], c("Kernel#eval"), "by_class"]],
  "by_load" => [[WORK, ["<top (required)>", "<top (required)>"], c("Kernel#load"), "by_load"],
                [c("Kernel#load"), "by_load"]],
  "by_tap" => [[WORK, ["block in Object#by_tap", "by_tap"], c("Kernel#tap"), "by_tap"]],
  "by_digits" => [[c("Integer#to_s"), "by_digits"]],
  "by_sorting" => [[c("Array#sort"), "by_sorting"]],
  "by_match" => [[c("Regexp#match?"), "by_match"], ["/String#*", "by_match"]],
  "by_rescue" => [[WORK, ["rescue in Object#by_rescue", "by_rescue"], ["Object#by_rescue", "by_rescue/raise"]]],
  "by_ensure" => [[WORK, ["ensure in Object#ensuring", "ensuring"], ["Object#ensuring", "ensuring"],
                   "by_ensure"]],
  "by_rescue_in_block" => [
    [WORK, ["rescue in block in Object#by_rescue_in_block", "by_rescue_in_block/rescue"],
     ["block in Object#by_rescue_in_block", "by_rescue_in_block/raise"], c("Array#each"), "by_rescue_in_block"]
  ],
  "by_catch" => [[WORK, ["block in Object#by_catch", "by_catch/block"], c("Kernel#catch"), "by_catch"]],
  "by_raise" => [["*", "by_raise"]],
  "by_recursion" => [[WORK, ["Object#recurse", "recurse/end"]] + [["Object#recurse", "recurse"]] * 40 + ["by_recursion"]],
  "by_deep" => [[WORK, ["Object#recurse", "recurse/end"]] + [["Object#recurse", "recurse"]] * 400 + ["by_deep"]],
  "by_nest" => [[WORK, ["Object#nest", "nest/end"]] +
                [["block in Object#nest", "nest"], c("Array#each"), ["Object#nest", "nest"]] * 30 + ["by_nest"]],
  "by_times" => [[["block in Object#by_times", "by_times"], c("Integer#times"), "by_times"],
                 [c("Integer#times"), "by_times"]],
  "by_upto" => [[["block in Object#by_upto", ["by_upto", "by_upto/block"]], c("Integer#upto"), "by_upto"],
                [c("Integer#upto"), "by_upto"]],
  "by_fiber" => [[WORK, ["block in Object#by_fiber", "by_fiber"], nil]],
  "by_enumerator" => [[WORK, ["block in Object#by_enumerator", "by_enumerator"], c("Enumerator::Generator#each"),
                       c("Enumerator#each"), nil], ["*", "by_enumerator"]],
  "by_enumerating" => [[WORK, ["block in Object#by_enumerating", "by_enumerating"], c("Array#each"),
                        c("Enumerator#with_index"), "by_enumerating"]],
  "by_lazy" => [[WORK, ["block in Object#by_lazy", "by_lazy"], "*", c("Enumerable#first"), "/Enumerator::Lazy#first",
                 "by_lazy"]],
  "by_thread" => [[WORK, ["block in Object#by_thread", "by_thread"], nil], ["*", "by_thread"]],
  "by_ractor" => [[WORK, ["block in Object#by_ractor", "by_ractor"], nil], ["*", "by_ractor"]],
  "by_gc" => [[c("GC.start"), "by_gc"]],
  "by_allocation" => [["by_allocation"], [c("Integer#to_s"), "by_allocation"]],
  "by_compact" => [[c("GC.compact"), "by_compact"]]
}.freeze

def lines
  found = Hash.new { |hash, key| hash[key] = [] }
  File.readlines(HERE).each_with_index do |line, i|
    line.scan(/# at (.+)$/) { |tag,| found[tag] << i + 1 }
  end
  found
end

# One frame as [method, lines, file]; "*": any frames; a name after a slash: a method in C that may be missing.
def describe_frame(name, frame, at)
  return [frame, [], ""] if frame.is_a?(String) && (frame == "*" || frame.start_with?("/"))
  return ["Object##{frame}", at.fetch(frame), HERE] if frame == name
  method, tags, file = frame
  return [method, [tags], file] if file
  numbers = Array(tags).flat_map { |tag| at.fetch(tag) }
  [method, numbers, numbers.empty? ? "" : HERE]
end

def describe(name, at)
  CHAINS.fetch(name).map do |chain|
    out = []
    chain.each { |frame| out << describe_frame(name, frame, at) if frame }
    out.concat([["Object#run", at.fetch("run"), HERE], ["<main>", at.fetch("main"), HERE]]) if chain.last
    out
  end
end

def run(names)
  i = 0
  while true
    __send__(names[i % names.size]) # at run
    i += 1
  end
end

options = ARGV.grep(/\A--/)
names = ARGV.grep(/\Aby_/)
if names.empty?
  names = CHAINS.keys
  names -= ["by_ractor"] unless defined?(Ractor)
  names -= ["by_compact"] unless GC.respond_to?(:compact)
end
names -= ["by_ractor", "by_compact"] if options.include?("--plain")
at = lines
pids = [Process.pid]
chains = names.flat_map { |name| describe(name, at) }
if options.include?("--fork")
  2.times { pids << fork { sleep 1; run(names) } } # at fork
  main = chains.select { |chain| chain.last[0] == "<main>" }
  chains += main.map do |chain|
    chain[0..-2] + [["block (2 levels) in <main>", at.fetch("fork"), HERE], c("Kernel#fork") + [""],
                    ["block in <main>", at.fetch("fork"), HERE], c("Integer#times") + [""],
                    ["<main>", at.fetch("fork"), HERE]]
  end
end
Warning[:experimental] = false if defined?(Warning.[]=)
puts JSON.generate(pid: Process.pid, pids: pids, file: HERE, version: RUBY_VERSION, chains: chains)
$stdout.flush
run(names) # at main
